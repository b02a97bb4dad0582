"""Parses events that come once per file or in unusual transactions, each into a small record.

``body`` is an event without its 19-byte header and its checksum; only `parse_format_description` takes the whole event.
Formats: MySQL's reference of the binlog events ("Binlog Event") and of its serialization library, MariaDB's knowledge
base ("Replication Protocol"). All functions raise :class:`DecodeError` with the event and the field.
"""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from typing import Final

from datastores.mysql.decode.charsets import charset_name_of, codec_of
from datastores.mysql.decode.cursor import Cursor
from datastores.mysql.decode.events import CHECKSUM, FL_COMPLETED_XA, FL_GROUP_COMMIT_ID, FL_PREPARED_XA, HEADER
from datastores.mysql.decode.gtid import MAX_NUMBER, source_text
from wormhole.model.errors import DecodeError

__all__ = [
    "FormatDescription",
    "Incident",
    "MariaGtid",
    "Query",
    "Rotate",
    "TaggedGtid",
    "XaPrepare",
    "Xid",
    "parse_format_description",
    "parse_gtid_tagged",
    "parse_incident",
    "parse_load_query",
    "parse_mariadb_gtid",
    "parse_query",
    "parse_rotate",
    "parse_xa_prepare",
]

_FLAGS_AT: Final = 17
_IN_USE: Final = 1
_CHECKSUM_NONE: Final = 0
_CHECKSUM_CRC32: Final = 1

# Status variables of a query event before the variable with the databases, by code: the number of bytes after the code,
# or the number of texts with preceding lengths.
_STATUS_SIZES: Final = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4}
_STATUS_TEXTS: Final = {5: 1, 6: 1, 11: 2}  # time zone, catalog, and user with host
_STATUS_SQL_MODE: Final = 1
_STATUS_CHARSET: Final = 4
_STATUS_DATABASES: Final = 12
_MOST_DATABASES: Final = 16  # a larger number means any database
_LOAD_QUERY: Final = slice(13, 26)  # the file's id, its place in the statement, the handling of duplicates

_XID_PART: Final = 64


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The format of a file's events.

    ``header_lengths``: by event type minus one, the bytes between the header and the part of variable length.
    ``checksum``: whether events end with a CRC-32.
    """

    header_lengths: bytes
    checksum: bool


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log continues in the file ``name`` at ``position``."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Query:
    """A statement and its database. ``error_code``: the error with which it ended; 0: success.

    Bytes of ``sql`` that are no text in the client's character set are lone surrogates, U+DC00 plus the byte.
    ``sql_mode``: as a number. ``spaces``: characters beyond ASCII that are white space in that character set.
    ``databases``: the databases of all tables that the statement opened, also through triggers, functions and views;
    ``None``: the log lacks them (MariaDB), or the server does not know all (a foreign key may reach others).
    """

    database: str
    sql: str
    error_code: int
    sql_mode: int = 0
    spaces: str = ""
    databases: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction. ``str`` gives it the form of MySQL's statements."""

    gtrid: bytes
    bqual: bytes = b""
    format_id: int = 1

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """The XA transaction before this event is prepared; with ``one_phase`` it is committed."""

    xid: Xid
    one_phase: bool


@dataclass(frozen=True, slots=True)
class Incident:
    """The server lost events, so the log has a gap here."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class TaggedGtid:
    """MySQL's GTID event with a tag: ``source`` is ``uuid:tag``.

    ``committed_at_us``: microseconds since 1970, the commit time on the server that is read."""

    source: str
    number: int
    committed_at_us: int


@dataclass(frozen=True, slots=True)
class MariaGtid:
    """MariaDB's GTID event. The server id is in the event's header. ``xid``: present with the flags of XA."""

    domain: int
    sequence: int
    flags: int
    xid: Xid | None


def parse_format_description(event: bytes) -> FormatDescription:
    """Parse the whole event with header and checksum. A checksum is verified."""
    cursor = Cursor(event, "format description event", HEADER)
    version = cursor.number(2, "binlog version")
    if version != 4:
        raise DecodeError(f"format description event: binlog version {version} is not 4")
    cursor.take(50 + 4, "server version and time of creation")
    header = cursor.number(1, "header length")
    if header != HEADER:
        raise DecodeError(f"format description event: headers of {header} bytes are not known")
    lengths = cursor.take(max(0, cursor.left - 1 - CHECKSUM), "header lengths")
    algorithm = cursor.number(1, "checksum algorithm")
    if algorithm not in (_CHECKSUM_NONE, _CHECKSUM_CRC32):
        raise DecodeError(f"format description event: checksum algorithm {algorithm} is unknown")
    stored = cursor.number(CHECKSUM, "checksum")
    closed = bytearray(event[:-CHECKSUM])
    closed[_FLAGS_AT] &= ~_IN_USE & 0xFF  # the checksum excludes this flag, which is set while the file is written
    if algorithm == _CHECKSUM_CRC32 and stored != zlib.crc32(closed):
        raise DecodeError("format description event: the checksum does not match")
    return FormatDescription(lengths, algorithm == _CHECKSUM_CRC32)


def parse_rotate(body: bytes) -> Rotate:
    """The place at which the log continues."""
    cursor = Cursor(body, "rotate event")
    position = cursor.number(8, "position")
    name = cursor.text(cursor.left, "file name")
    if not name:
        raise DecodeError("rotate event: the file name is missing")
    return Rotate(name, position)


# Statements that the servers generate, in UTF-8 regardless of the client's character set.
_GENERATED: Final = re.compile(
    rb"(?:SAVEPOINT|ROLLBACK TO|DELETE FROM) [`\"]"
    rb"|.*/\* (?:generated by server for memory table|generated by server, implicitly|Generated to handle failed)[^*]*\*/\Z",  # noqa: E501
    re.DOTALL,
)
_BYTES: Final = "wormhole-bytes"
"""Name of an error handler that turns bytes that are no text into lone surrogates."""
# Single-byte character sets in which the no-break space is white space for the lexers of both servers (tested with each
# byte of each character set).
_SPACES: Final = frozenset(
    {"cp1250", "cp852", "cp866", "greek", "hebrew", "latin1", "latin2", "latin5", "latin7"}
    | {"armscii8", "dec8", "geostd8", "keybcs2"}
)
_NO_BREAK_SPACE: Final = "\xa0"
# The bytes below 0x80 that are letters in swe7.
_OF_SWE7: Final = {ord(character): 0xDC00 + ord(character) for character in "@[\\]^{|}~"}


def _status(status: bytes) -> tuple[int, int, tuple[str, ...] | None]:
    """``sql_mode``, the collation of the statement's text (0: not in the event), and the databases (see `Query`)."""
    cursor = Cursor(status, "query event: status variables")
    mode = collation = 0
    while cursor.left:
        code = cursor.number(1, "code")
        if code == _STATUS_DATABASES:
            return mode, collation, _databases(cursor)
        for _ in range(_STATUS_TEXTS.get(code, 0)):
            cursor.take(cursor.number(1, f"length of variable {code}"), f"variable {code}")
        if code in _STATUS_SIZES:
            value = int.from_bytes(cursor.take(_STATUS_SIZES[code], f"variable {code}"), "little")
            if code == _STATUS_SQL_MODE:
                mode = value
            elif code == _STATUS_CHARSET:
                collation = value & 0xFFFF  # the client's collation; those of connection and server follow
        elif code not in _STATUS_TEXTS:
            break
    return mode, collation, None


def _databases(cursor: Cursor) -> tuple[str, ...] | None:
    count = cursor.number(1, "number of databases")
    names = cursor.rest().split(b"\0", count)[:-1]
    if len(names) != count or not 0 < count <= _MOST_DATABASES or not all(names):  # an empty name means any database
        return None
    try:
        return tuple(name.decode() for name in names)
    except UnicodeDecodeError:
        return None


def parse_load_query(body: bytes) -> bytes:
    """The body of a query event for a ``LOAD DATA``, from the event that follows the file's content."""
    if len(body) < _LOAD_QUERY.stop:
        raise DecodeError("event of a LOAD DATA: it is cut")
    return body[: _LOAD_QUERY.start] + body[_LOAD_QUERY.stop :]


def parse_query(body: bytes, *, generated: bool = False) -> Query:
    """Parse a statement, decoded from the character set of the client that sent it.

    ``generated``: the server generated the statement, because it is within a transaction. It is then UTF-8. Some other
    statements in UTF-8 are recognized by their text.
    """
    cursor = Cursor(body, "query event")
    cursor.take(8, "thread and time")
    name = cursor.number(1, "length of the database's name")
    error_code = cursor.number(2, "error code")
    status = cursor.take(cursor.number(2, "length of the status variables"), "status variables")
    database = cursor.text(name, "database")
    cursor.take(1, "end of the database's name")
    mode, collation, databases = _status(status)
    sql, spaces = _sql(cursor.rest(), collation, generated=generated)
    return Query(database, sql, error_code, mode, spaces, databases)


def _sql(text: bytes, collation: int, *, generated: bool) -> tuple[str, str]:
    """Decode a statement's text. Returns it with the characters beyond ASCII that are white space in it."""
    charset = charset_name_of(collation)
    if charset == "swe7":
        return text.decode("ascii", _BYTES).translate(_OF_SWE7), ""
    if text.isascii():
        return text.decode("ascii"), ""
    if generated or _GENERATED.match(text):
        try:
            return text.decode(), ""
        except UnicodeDecodeError:
            pass
    codec = codec_of(collation) or ("utf-8" if not charset else "ascii")
    spaces = _NO_BREAK_SPACE if charset in _SPACES else ""
    if codec == "ascii" and spaces:
        spaces = chr(0xDCFF if charset == "keybcs2" else 0xDCA0)
    return text.decode(codec, _BYTES), spaces


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_BYTES, _as_surrogates)


def _xid(cursor: Cursor, size: int) -> Xid:
    """Read a format and two parts whose lengths take ``size`` bytes each."""
    format_id = cursor.number(4, "xid's format")
    lengths = cursor.number(size, "length of the xid's gtrid"), cursor.number(size, "length of the xid's bqual")
    if max(lengths) > _XID_PART:
        raise DecodeError(f"{cursor.what}: a part of the xid has {max(lengths)} bytes, which is over {_XID_PART}")
    return Xid(cursor.take(lengths[0], "xid's gtrid"), cursor.take(lengths[1], "xid's bqual"), format_id)


def parse_xa_prepare(body: bytes) -> XaPrepare:
    """The end of the first phase of an XA transaction."""
    cursor = Cursor(body, "XA prepare event")
    one_phase = cursor.number(1, "one phase") != 0
    return XaPrepare(_xid(cursor, 4), one_phase)


def parse_incident(body: bytes) -> Incident:
    """The server's message about lost events."""
    cursor = Cursor(body, "incident event")
    number = cursor.number(2, "number")
    return Incident(number, cursor.text(cursor.number(1, "length of the message"), "message"))


def parse_gtid_tagged(body: bytes) -> TaggedGtid:
    """A GTID event in the format of MySQL's serialization library::

        message := version size last-needed field*     field := id value     ids ascend; unused fields are left out

    ``size``: the size from the version on. ``last-needed``: one more than the last id that a reader must know.
    """
    cursor = Cursor(body, "tagged GTID event")
    if (version := cursor.varint("version")) != 1:
        raise DecodeError(f"tagged GTID event: version {version} of its format is unknown")
    size = cursor.varint("size")
    if not cursor.at < size <= len(body):
        raise DecodeError(f"tagged GTID event: a size of {size} bytes in an event of {len(body)}")
    cursor.end = size
    if (needed := cursor.varint("last field needed")) > 12:
        raise DecodeError(f"tagged GTID event: field {needed - 1} is unknown and may not be passed over")
    uuid: bytes | None = None
    tag = ""
    number = committed_at_us = 0
    before = -1
    while cursor.left and before < 11:
        field = cursor.varint("field")
        if field <= before:
            raise DecodeError(f"tagged GTID event: field {field} after field {before}")
        before = field
        if field == 1:
            digits = [cursor.varint("uuid") for _ in range(16)]
            if max(digits) > 255:
                raise DecodeError("tagged GTID event: the uuid is none")
            uuid = bytes(digits)
        elif field == 2:
            number = cursor.signed_varint("number")
        elif field == 3:
            tag = cursor.text(cursor.varint("length of the tag"), "tag")
        elif field == 6:
            committed_at_us = cursor.varint("time of commit")
        elif field <= 11:
            cursor.varint(f"field {field}")
    if uuid is None or not 0 < number <= MAX_NUMBER:
        raise DecodeError("tagged GTID event: its uuid or number is missing or out of range")
    return TaggedGtid(source_text(uuid, tag), number, committed_at_us)


def parse_mariadb_gtid(body: bytes) -> MariaGtid:
    """MariaDB's GTID event."""
    cursor = Cursor(body, "MariaDB GTID event")
    sequence = cursor.number(8, "sequence number")
    domain = cursor.number(4, "domain")
    flags = cursor.number(1, "flags")
    if flags & FL_GROUP_COMMIT_ID:
        cursor.take(8, "commit id")
    return MariaGtid(domain, sequence, flags, _xid(cursor, 1) if flags & (FL_PREPARED_XA | FL_COMPLETED_XA) else None)
