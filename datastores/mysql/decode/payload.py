"""Decompresses events: MySQL's transaction payload, and MariaDB's compressed statements and rows.

MySQL (reference of the binlog events, "Transaction_payload_event")::

    payload := field* 0 data          field := kind length value        all length-encoded integers
    kinds   := 1 size of data | 2 compression: 0 zstd, 255 none | 3 size when inflated

The data are whole events with headers and without checksums. MariaDB ("Query_compressed" and "Rows compressed" events
of its replication protocol) compresses the last part of an event::

    compressed := 0x80 | bytes of size    size (big endian)    zlib stream
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import zstandard

from datastores.mysql.decode import events
from datastores.mysql.decode.cursor import Cursor
from datastores.mysql.decode.events import HEADER
from datastores.mysql.decode.large_event import Body, LargeEvent, with_length
from datastores.mysql.decode.row_stream import head_of_rows
from wormhole.model.errors import DecodeError

__all__ = ["COMPRESSED", "inflate", "plain_event"]

_TYPE_AT: Final = 4
_LENGTH_AT: Final = 9
_FIELDS: Final = 4096  # the most bytes of a payload's fields
_PIECE: Final = 64 << 10

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
COMPRESSED: Final = frozenset(_PLAIN)
"""The types of compressed events, which only MariaDB writes."""


def inflate(body: Body, limit: int, held: int) -> Iterator[bytes | LargeEvent]:
    """The events of a transaction payload, in order. ``body``: the payload event without header and checksum.

    Events are inflated on demand. Memory holds one event of up to ``held`` bytes or a part of a larger one, and zstd's
    window, whose size the server chose (2 MiB by default, at most 128 MiB). A larger event must be read before the next
    one is taken. Raises :class:`DecodeError`, also for an event over ``limit`` bytes.
    """
    cursor = Cursor(body.take(_FIELDS), "transaction payload event")
    size = compression = -1
    while (kind := cursor.length("kind of field")) != _END:
        value = cursor.take(cursor.length("length of field"), f"field {kind}")
        if kind == _SIZE:
            size = Cursor(value, cursor.what).length("size of data")
        elif kind == _COMPRESSION:
            compression = Cursor(value, cursor.what).length("compression")
    body.back(cursor.rest())
    if not 0 <= size <= body.left:
        raise DecodeError(f"transaction payload event: {size} bytes of data, {body.left} are left")
    body.left = size
    if compression == _NONE:
        return _events(body.take, limit, held)
    if compression == _ZSTD:
        reader = zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True)  # type: ignore[arg-type]
        return _events(io.BufferedReader(reader, _PIECE).read, limit, held)
    raise DecodeError(f"transaction payload event: compression {compression} is unknown")


def _events(source: Callable[[int], bytes], limit: int, held: int) -> Iterator[bytes | LargeEvent]:
    def read(size: int) -> bytes:
        try:
            return source(size)
        except zstandard.ZstdError as error:
            raise DecodeError(f"transaction payload event: the data cannot be inflated: {error}") from error

    while header := read(HEADER):
        if len(header) < HEADER:
            raise DecodeError(f"transaction payload event: {len(header)} bytes after the last event")
        (length,) = struct.unpack_from("<I", header, _LENGTH_AT)
        if not HEADER <= length <= limit:
            raise DecodeError(f"transaction payload event: an event of {length} bytes, the limit is {limit}")
        if header[_TYPE_AT] == events.TRANSACTION_PAYLOAD:
            raise DecodeError("transaction payload event: a payload inside of a payload")
        if length > held:
            large = LargeEvent(header, Body(read, length - HEADER))
            yield large
            large.body.skip(large.body.left)
            continue
        event = header + read(length - HEADER)
        if len(event) < length:
            raise DecodeError(f"transaction payload event: {len(event)} of an event's {length} bytes are there")
        yield event


def plain_event(header: bytes, body: Body, limit: int) -> LargeEvent:
    """The uncompressed form of a compressed MariaDB event, inflated while its body is read.

    ``body``: the event without header and checksum. ``limit``: the most bytes of the inflated part. Raises
    :class:`DecodeError`.
    """
    plain = _PLAIN.get(header[_TYPE_AT])
    if plain is None:
        raise DecodeError(f"an event of type {header[_TYPE_AT]} is no compressed event")
    head = _head_of_query(body) if plain == events.QUERY else head_of_rows(plain, body)
    first = _number(body, 1, "compression")
    if first & 0xF8 != 0x80:
        raise DecodeError(f"compressed event: compression 0x{first:02x} is unknown")
    size = _number(body, first & 0x07, "size of data")
    if size > limit:
        raise DecodeError(f"compressed event: {size} bytes when inflated, the limit is {limit}")
    inflated = Body(_Inflater(body, size).read, size)
    inflated.back(head)
    header = with_length(header[:_TYPE_AT] + bytes([plain]) + header[_TYPE_AT + 1 :], inflated.left)
    return LargeEvent(header, inflated)


def _head_of_query(body: Body) -> bytes:
    head = body.take(13)
    if len(head) < 13:
        raise DecodeError(f"compressed event: thread and time takes 13 bytes, {len(head)} are there")
    size = int.from_bytes(head[11:13], "little") + head[8] + 1
    rest = body.take(size)
    if len(rest) < size:
        raise DecodeError(f"compressed event: status variables and database takes {size} bytes, {len(rest)} are left")
    return head + rest


def _number(body: Body, size: int, field: str) -> int:
    raw = body.take(size)
    if len(raw) < size:
        raise DecodeError(f"compressed event: {field} takes {size} bytes, {len(raw)} are left")
    return int.from_bytes(raw, "big")


class _Inflater:
    """A zlib stream that must inflate to ``size`` bytes."""

    def __init__(self, body: Body, size: int) -> None:
        self._body = body
        self._size = size
        self._left = size
        self._stream = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes. With the last byte the stream's end is checked."""
        data = self._inflate(size)
        self._left -= len(data)
        if not data or (not self._left and (self._inflate(1) or not self._stream.eof)):
            raise DecodeError(f"compressed event: the data are not the {self._size} bytes that it announces")
        return data

    def _inflate(self, size: int) -> bytes:
        stream = self._stream
        while not stream.eof:
            packed = stream.unconsumed_tail or self._body.read(_PIECE)
            try:
                data = stream.decompress(packed, size)
            except zlib.error as error:
                raise DecodeError(f"compressed event: the data cannot be inflated: {error}") from error
            if data or not packed:
                return data
        return b""
