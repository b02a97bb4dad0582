"""Reads the rare messages of pgoutput, which describe tables and types.

PostgreSQL's documentation of the logical replication message formats has the layout. Numbers are big endian, and
``text`` ends with a zero byte. An empty schema name means ``pg_catalog``::

    Relation := 'R' id (4) schema (text) table (text) replica identity (1) number of columns (2) column*
    column   := flags (1; 1: part of the key) name (text) type (4) type modifier (4)
    Type     := 'Y' id (4) schema (text) name (text)
    Origin   := 'O' LSN of the commit there (8) name (text)
    Message  := 'M' flags (1; 1: transactional) LSN (8) prefix (text) length (4) content
    Truncate := 'T' number of tables (4) options (1; 1: CASCADE, 2: RESTART IDENTITY) id (4)*
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from datastores.postgres.decode.encodings import UTF8, Encoding
from wormhole.model.errors import DecodeError

__all__ = [
    "DEFAULT",
    "FULL",
    "INDEX",
    "MESSAGES",
    "NOTHING",
    "LogicalMessage",
    "Relation",
    "RelationColumn",
    "TypeName",
    "begins_behind",
    "parse_message",
    "parse_relation",
    "parse_truncate",
    "parse_type",
]

DEFAULT: Final = "d"
NOTHING: Final = "n"
FULL: Final = "f"
INDEX: Final = "i"

MESSAGES: Final = "@message"
"""The table of logical messages (``pg_logical_emit_message``), which are delivered as inserts. It has no key."""

_HEADER: Final = 25  # the header of a message with log data
_IDENTITIES: Final = frozenset({DEFAULT, NOTHING, FULL, INDEX})
_MOST_COLUMNS: Final = 1664  # PostgreSQL's limit for a table


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """``is_key``: the column is part of a row's identity in the log; with `FULL` every column is. ``modifier``: the
    type's modifier; -1: none."""

    name: str
    type: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """Describes a table for the rows after this message. ``identity``: its REPLICA IDENTITY: `DEFAULT`, `NOTHING`,
    `FULL` or `INDEX`."""

    id: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type that is not built in. For a domain, schema and name are those of its base type."""

    id: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message written by ``pg_logical_emit_message``. ``lsn``: its place in the log."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


class _Cursor:
    """Reads the fields of a message in order. Raises :class:`DecodeError` with the message and the field."""

    def __init__(self, data: bytes, at: int, what: str, encoding: Encoding = UTF8) -> None:
        self._data = data
        self._encoding = encoding
        self._at = at + 1
        self._what = what

    def number(self, layout: str, field: str) -> int:
        size = struct.calcsize(layout)
        if len(self._data) - self._at < size:
            raise self._cut(field)
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += size
        return value

    def text(self, field: str) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise self._cut(field)
        raw, self._at = self._data[self._at : end], end + 1
        return self._encoding.show(raw)

    def bytes(self, size: int, field: str) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise self._cut(field)
        self._at += size
        return self._data[self._at - size : self._at]

    def end(self) -> None:
        if self._at != len(self._data):
            raise DecodeError(f"{self._what}: {len(self._data) - self._at} bytes follow its end")

    def _cut(self, field: str) -> DecodeError:
        return DecodeError(f"{self._what}: it is cut in the {field}")


def parse_relation(data: bytes, at: int, encoding: Encoding = UTF8) -> Relation:
    """The Relation message at ``at``. Raises :class:`DecodeError`."""
    cursor = _Cursor(data, at, "Relation message", encoding)
    number = cursor.number(">I", "id")
    schema = cursor.text("schema name") or "pg_catalog"
    table = cursor.text("table name")
    identity = chr(cursor.number(">B", "replica identity"))
    count = cursor.number(">h", "number of columns")
    if identity not in _IDENTITIES:
        raise DecodeError(f"Relation message of {schema}.{table}: replica identity {identity!r} is not known")
    if not 0 <= count <= _MOST_COLUMNS:
        raise DecodeError(f"Relation message of {schema}.{table}: it claims {count} columns")
    columns = []
    for _ in range(count):
        flags = cursor.number(">B", "flags of a column")
        name = cursor.text("name of a column")
        columns.append(
            RelationColumn(
                name, cursor.number(">I", "type of a column"), cursor.number(">i", "type modifier"), bool(flags & 1)
            )
        )
    cursor.end()
    return Relation(number, schema, table, identity, tuple(columns))


def parse_type(data: bytes, at: int, encoding: Encoding = UTF8) -> TypeName:
    """The Type message at ``at``. Raises :class:`DecodeError`."""
    cursor = _Cursor(data, at, "Type message", encoding)
    found = TypeName(cursor.number(">I", "id"), cursor.text("schema name"), cursor.text("name"))
    cursor.end()
    return found


def parse_message(data: bytes, at: int, encoding: Encoding = UTF8) -> LogicalMessage:
    """The Message message at ``at``. Raises :class:`DecodeError`."""
    cursor = _Cursor(data, at, "logical message", encoding)
    flags = cursor.number(">B", "flags")
    lsn = cursor.number(">Q", "LSN")
    prefix = cursor.text("prefix")
    content = cursor.bytes(cursor.number(">I", "length of the content"), "content")
    cursor.end()
    return LogicalMessage(bool(flags & 1), lsn, prefix, content)


def parse_truncate(data: bytes, at: int) -> tuple[int, ...]:
    """The OIDs of the tables in the Truncate message at ``at``. Raises :class:`DecodeError`."""
    cursor = _Cursor(data, at, "Truncate message")
    count = cursor.number(">I", "number of tables")
    cursor.number(">B", "options")
    raw = cursor.bytes(4 * count, "ids of tables")
    cursor.end()
    return struct.unpack(f">{count}I", raw)


def begins_behind(data: bytes, place: int) -> bool:
    """Whether log data begins a transaction committed at or after ``place``, or is a logical message after ``place``
    and outside a transaction."""
    kind, content = data[_HEADER : _HEADER + 1], data[_HEADER + 1 :]
    if kind == b"B" and len(content) >= 8:
        return int.from_bytes(content[:8]) >= place
    return kind == b"M" and len(content) >= 9 and not content[0] & 1 and int.from_bytes(content[1:9]) > place
