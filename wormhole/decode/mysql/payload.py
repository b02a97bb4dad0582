"""Events that hold compressed events: MySQL's transaction payload and MariaDB's compressed statements and rows.

MySQL (reference of the binlog events, "Transaction_payload_event")::

    payload := field* 0 data          field := kind length value        all length-encoded integers
    kinds   := 1 size of data | 2 compression: 0 zstd, 255 none | 3 size when inflated

The data are whole events, headers and all, without checksums. MariaDB ("Query_compressed" and "Rows compressed" events of its
replication protocol) compresses the end of an event::

    compressed := 0x80 | bytes of size    size (big endian)    zlib stream
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import zstandard

from wormhole.decode.mysql import events
from wormhole.decode.mysql.cursor import Cursor
from wormhole.decode.mysql.events import HEADER
from wormhole.errors import DecodeError

__all__ = ["inflate", "plain_event"]

_TYPE_AT: Final = 4
_LENGTH_AT: Final = 9

_END, _SIZE, _COMPRESSION = 0, 1, 2
_ZSTD: Final = 0
_NONE: Final = 255

_PLAIN: Final = {
    events.QUERY_COMPRESSED: events.QUERY,
    events.WRITE_ROWS_COMPRESSED_V1: events.WRITE_ROWS_V1,
    events.UPDATE_ROWS_COMPRESSED_V1: events.UPDATE_ROWS_V1,
    events.DELETE_ROWS_COMPRESSED_V1: events.DELETE_ROWS_V1,
    events.WRITE_ROWS_COMPRESSED: events.WRITE_ROWS_V2,
    events.UPDATE_ROWS_COMPRESSED: events.UPDATE_ROWS_V2,
    events.DELETE_ROWS_COMPRESSED: events.DELETE_ROWS_V2,
}
_SECOND_FORM: Final = frozenset({events.WRITE_ROWS_V2, events.UPDATE_ROWS_V2, events.DELETE_ROWS_V2})
_UPDATES: Final = frozenset({events.UPDATE_ROWS_V1, events.UPDATE_ROWS_V2})


def inflate(body: bytes, limit: int) -> Iterator[bytes]:
    """The events of a transaction payload, one after the other; ``body`` is the payload event without header and checksum.

    Inflated as they are asked for: in memory there is one event at a time and what zstd needs. Raises :class:`DecodeError`, also
    for an event over ``limit`` bytes.
    """
    cursor = Cursor(body, "transaction payload event")
    size = compression = -1
    while (kind := cursor.length("kind of field")) != _END:
        value = cursor.take(cursor.length("length of field"), f"field {kind}")
        if kind == _SIZE:
            size = Cursor(value, cursor.what).length("size of data")
        elif kind == _COMPRESSION:
            compression = Cursor(value, cursor.what).length("compression")
    if not 0 <= size <= cursor.left:
        raise DecodeError(f"transaction payload event: {size} bytes of data, {cursor.left} are left")
    data = memoryview(body)[cursor.at : cursor.at + size]
    if compression == _NONE:
        return _events(io.BytesIO(data), limit)
    if compression == _ZSTD:
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        return _events(io.BufferedReader(reader), limit)
    raise DecodeError(f"transaction payload event: compression {compression} is unknown")


def _events(source: io.BufferedIOBase, limit: int) -> Iterator[bytes]:
    try:
        while header := source.read(HEADER):
            if len(header) < HEADER:
                raise DecodeError(f"transaction payload event: {len(header)} bytes after the last event")
            (length,) = struct.unpack_from("<I", header, _LENGTH_AT)
            if not HEADER <= length <= limit:
                raise DecodeError(f"transaction payload event: an event of {length} bytes, the limit is {limit}")
            event = header + source.read(length - HEADER)
            if len(event) < length:
                raise DecodeError(f"transaction payload event: {len(event)} of an event's {length} bytes are there")
            yield event
    except zstandard.ZstdError as error:
        raise DecodeError(f"transaction payload event: the data cannot be inflated: {error}") from error


def plain_event(event: bytes, limit: int) -> bytes:
    """A compressed event of MariaDB as the event that it would be without compression; both without checksum.

    ``limit``: bytes of the inflated part. Raises :class:`DecodeError`.
    """
    kind = event[_TYPE_AT] if len(event) > HEADER else 0
    plain = _PLAIN.get(kind)
    if plain is None:
        raise DecodeError(f"an event of type {kind} and {len(event)} bytes is no compressed event")
    cursor = Cursor(event, "compressed event", HEADER)
    if plain == events.QUERY:
        cursor.take(8, "thread and time")
        database = cursor.number(1, "length of the database's name")
        cursor.take(2, "error code")
        cursor.take(cursor.number(2, "length of the status variables") + database + 1, "status variables and database")
    else:
        cursor.take(8, "table and flags")
        if plain in _SECOND_FORM:
            cursor.take(max(0, cursor.number(2, "length of the extra data") - 2), "extra data")
        bitmap = (cursor.length("number of columns") + 7) // 8
        cursor.take(bitmap * (2 if plain in _UPDATES else 1), "columns")
    head = bytearray(event[: cursor.at])
    first = cursor.number(1, "compression")
    if first & 0xF8 != 0x80:
        raise DecodeError(f"compressed event: compression 0x{first:02x} is unknown")
    size = int.from_bytes(cursor.take(first & 0x07, "size of data"), "big")
    if size > limit:
        raise DecodeError(f"compressed event: {size} bytes when inflated, the limit is {limit}")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(memoryview(event)[cursor.at :], size + 1)
    except zlib.error as error:
        raise DecodeError(f"compressed event: the data cannot be inflated: {error}") from error
    if len(data) != size or not stream.eof:
        raise DecodeError(f"compressed event: the data are not the {size} bytes that it tells")
    head[_TYPE_AT] = plain
    struct.pack_into("<I", head, _LENGTH_AT, (len(head) + size) & 0xFFFFFFFF)
    return bytes(head + data)
