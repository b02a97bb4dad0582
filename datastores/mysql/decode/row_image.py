"""Reads one row image and encodes the binlog's cells as values of an update. Hot: compiled where possible.

A cell becomes an entry of an update's repeated field: tag, length, ``Value`` (``wormhole.wire.v1``). So a whole image
can be copied into an update, and the key's cells can be copied alone with another tag.

    image := null bitmap (a bit for each present column, lowest first) cell of each present column that is not NULL

A value that is not valid text in its column's charset (possible with ``character_set_client=binary``) is sent as bytes,
so that no byte is lost.
"""

from __future__ import annotations

import zlib
from array import array
from typing import Final

from datastores.common.encode.buffer import copy_into
from datastores.common.encode.entries import Entries
from datastores.common.encode.wire_bytes import is_ascii, put_varint, valid_utf8, varint_size
from datastores.mysql.decode.charsets import ERRORS, utf8_parts
from datastores.mysql.decode.columns import Columns, uncompress
from datastores.mysql.decode.dates_and_decimals import (
    ROOM,
    put_date,
    put_datetime,
    put_datetime2,
    put_decimal,
    put_time,
    put_time2,
    put_timestamp,
)
from datastores.mysql.decode.floats import Singles
from datastores.mysql.decode.json_diff import apply_diffs
from datastores.mysql.decode.json_text import json_text, print_json
from datastores.mysql.decode.kinds import (
    ASCII_SAFE,
    BIT,
    BYTES,
    CODED,
    COMPRESSED,
    DATE,
    DATETIME,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    HIDDEN,
    INT,
    JSON,
    OLD,
    PADDED,
    TEXT,
    TIME,
    TIME2,
    TIMESTAMP2,
    UINT,
    YEAR,
)
from datastores.mysql.decode.old_temporal import old_size, old_text
from wormhole.model.errors import DecodeError

__all__ = ["Image"]

# The room made before each cell: for a number, or for a tag, three lengths and a text of bounded size.
_ENTRY_ROOM: Final = ROOM + 16
_TEXT_AT: Final = 11  # the most bytes of two lengths and a tag

# Tags of Value's fields.
_V_BYTES: Final = 0x0A
_V_TEXT: Final = 0x12
_V_INT: Final = 0x18
_V_UINT: Final = 0x20
_V_DOUBLE: Final = 0x29
_V_DECIMAL: Final = 0x3A
_V_NULL: Final = 0x40

_LIMIT: Final = (1 << 31) - 1
_SLICED: Final = 1 << 16
"""The most bytes for which an intermediate copy costs little."""
_PATCHED: Final = 1 << 20
"""The most bytes of a document to which changes are applied, or a sixteenth of the limit. The document becomes a tree
of objects."""


class Image(Entries):
    """The last row image that was read."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._singles = Singles()
        self._documents(self.capacity)

    def _documents(self, count: int) -> None:
        self._json_start_array = array("q", bytes(8 * count))
        self._json_end_array = array("q", bytes(8 * count))
        self._json_starts = self._json_start_array
        self._json_ends = self._json_end_array

    def read(
        self,
        data: bytes,
        at: int,
        end: int,
        columns: Columns,
        bits: bytes,
        count: int,
        tag: int,
        before: Image | None,
        source: bytes = b"",
    ) -> int:
        """Read the image at ``at`` into entries with ``tag``. Returns the offset after it.

        ``bits``: the present columns, ``count`` in number. ``before``: the image before a change, needed if this image
        may hold changes of JSON documents (PARTIAL_UPDATE_ROWS); ``source``: the data that it was read from. Raises
        :class:`DecodeError` with table, column and type.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT or len(bits) * 8 < columns.count:
            raise ValueError(f"row image {at}:{end} of {len(data)} bytes is out of range")
        if columns.count > self.capacity:
            self.hold(columns.count)
            self._documents(columns.count)
        self.release()
        p = data
        b = bits
        kinds = columns.kinds
        metas = columns.metas
        sizes = columns.sizes
        starts = self.starts
        here = self.present
        self.absent = 0
        self.too_large = False
        changes = 0  # offset of the bits of the JSON columns that hold changes; 0: none does
        change = 0
        if before is not None:
            if at == end or p[at] > 1:
                raise self._bad(columns, -1, "the options of the image after the change are not known")
            at += 1
            if p[at - 1]:
                changes = at
                at += (columns.json + 7) // 8
        nulls = at
        if at > end or (count + 7) // 8 > end - at:
            raise self._bad(columns, -1, "the row is cut inside its null bits")
        at += (count + 7) // 8
        null = 0
        used = 0
        out = self.out
        o = out
        for c in range(columns.count):
            starts[c] = used
            if used + _ENTRY_ROOM > self.room:
                self.grow(used, _ENTRY_ROOM)
                out = self.out
                o = out
            o[used] = tag
            kind = kinds[c]
            partial = False
            if kind == HIDDEN:
                here[c] = b[c >> 3] >> (c & 7) & 1
                if here[c]:
                    if not p[nulls + (null >> 3)] >> (null & 7) & 1:
                        if sizes[c] > end - at:
                            raise self._bad(columns, c, f"{sizes[c]} bytes do not fit into the {end - at} left")
                        at += sizes[c]
                    null += 1
                continue
            if kind == JSON:
                self._json_starts[c] = -1
                if changes:
                    partial = p[changes + (change >> 3)] >> (change & 7) & 1 != 0
                    change += 1
            if not b[c >> 3] >> (c & 7) & 1:
                here[c] = 0
                self.absent += 1
                used = self.unavailable(used + 1)
                continue
            here[c] = 1
            is_null = p[nulls + (null >> 3)] >> (null & 7) & 1
            null += 1
            if is_null:
                o[used + 1] = 2
                o[used + 2] = _V_NULL
                o[used + 3] = 1
                used += 4
                continue
            size = sizes[c]
            if size > end - at:
                raise self._bad(columns, c, f"{size} bytes do not fit into the {end - at} that are left")
            if kind <= UINT:
                if kind == 0:
                    raise self._bad(columns, c, "this type, or its metadata, is not known")
                negative = kind == INT and p[at + size - 1] > 0x7F
                flip = 0xFF if negative else 0
                n = 0
                for i in range(size - 1, -1, -1):
                    n = n << 8 | (p[at + i] ^ flip)
                if n >> 63:
                    o[used + 2] = _V_UINT
                else:
                    o[used + 2] = _V_INT
                    n = n << 1 | negative
                stop = used + 3
                while n > 0x7F:
                    o[stop] = n & 0x7F | 0x80
                    n >>= 7
                    stop += 1
                o[stop] = n
                o[used + 1] = stop - used - 1
                used = stop + 1
            elif kind <= PADDED:
                meta = metas[c]
                length = self._length(columns, c, meta & 7, data, at, end)
                at += meta & 7
                used = self._string(used + 1, kind, meta, columns, c, data, at, length)
                out = self.out
                o = out
                size = length
            elif kind == DOUBLE:
                o[used + 1] = 9
                o[used + 2] = _V_DOUBLE
                for i in range(8):
                    o[used + 3 + i] = p[at + i]
                used += 11
            elif kind == FLOAT:
                o[used + 1] = 9
                o[used + 2] = _V_DOUBLE
                used = self._singles.put(out, used + 3, data, at)
            elif kind <= DECIMAL or kind >= TIME:
                meta = metas[c]
                if kind == COMPRESSED:
                    size = self._compressed(used + 1, columns, c, data, at, end)
                    used = self.used
                    out = self.out
                    o = out
                else:
                    stop = self._text(used + 4, kind, meta, data, at)
                    if stop < 0:
                        raise self._bad(columns, c, f"0x{data[at : at + size].hex()} is no value of this type")
                    o[used + 1] = stop - used - 2
                    o[used + 2] = _V_DECIMAL if kind == DECIMAL else _V_TEXT
                    o[used + 3] = stop - used - 4
                    used = stop
            elif kind == YEAR:
                n = p[at]
                used = self._number(used + 1, _V_INT, 2 * (1900 + n) if n else 0)
            elif kind == BIT:
                n = 0
                for i in range(size):
                    n = n << 8 | p[at + i]
                used = self._number(used + 1, _V_UINT, n)
            elif kind == JSON:
                size = self._json(used + 1, columns, c, data, at, end, before if partial else None, source)
                used = self.used
                out = self.out
                o = out
            else:
                n = 0
                for i in range(size - 1, -1, -1):
                    n = n << 8 | p[at + i]
                member = self._members(columns, c, kind, n)
                used = self.put(used + 1, _V_TEXT, member, 0, len(member))
                out = self.out
                o = out
            at += size
        starts[columns.count] = used
        self.used = used
        return at

    def _string(
        self, used: int, kind: int, meta: int, columns: Columns, c: int, data: bytes, at: int, length: int
    ) -> int:
        """Write a string's entry from its length on. The string has ``length`` bytes at ``at``. Returns the offset
        after it."""
        total = length
        if kind == PADDED:
            total = meta >> 8
            if length > total:
                raise self._bad(columns, c, f"{length} bytes are longer than the column")
        if not self.fits(used, columns.keyed, c, total):
            return self.leave_out(used)
        if kind == CODED and not (meta & ASCII_SAFE and is_ascii(data, at, at + length)):
            if length > _SLICED:
                return self._coded(used, columns, c, data, at, length)
            text = data[at : at + length].decode(columns.layout.codecs[c], ERRORS).encode()
            return self._put_kept(used, _V_TEXT, columns, c, text)
        tag = _V_TEXT
        if kind == BYTES or (
            kind == TEXT and not is_ascii(data, at, at + length) and not valid_utf8(data, at, at + length)
        ):
            tag = _V_BYTES
        if kind != PADDED:
            return self.put(used, tag, data, at, length)
        padded = data[at : at + length] + bytes(total - length)
        return self.put(used, _V_BYTES, padded, 0, total)

    def _coded(self, used: int, columns: Columns, c: int, data: bytes, at: int, length: int) -> int:
        """Write a long text of another character set as UTF-8, a part at a time."""
        begin = used + _TEXT_AT
        stop = begin
        for text in utf8_parts(data, at, length, columns.layout.codecs[c]):
            if not self.fits(used, columns.keyed, c, stop - begin + len(text)):
                return self.leave_out(used)
            if stop + len(text) > self.room:
                self.grow(stop, len(text))
            copy_into(self.out, stop, text, 0, len(text))
            stop += len(text)
        return self._text_at(used, begin, stop)

    def _put_kept(self, used: int, tag: int, columns: Columns, c: int, value: bytes) -> int:
        """Write an entry from its length on: ``value``, or the mark of a value left out because of its size."""
        if not self.fits(used, columns.keyed, c, len(value)):
            return self.leave_out(used)
        return self.put(used, tag, value, 0, len(value))

    def _number(self, used: int, tag: int, n: int) -> int:
        out = self.out
        o = out
        o[used + 1] = tag
        stop = put_varint(out, used + 2, n)
        o[used] = stop - used - 1
        return stop

    def _text(self, used: int, kind: int, meta: int, data: bytes, at: int) -> int:
        """Write a temporal value or a decimal. A negative result means that the bytes are no such value."""
        p = data
        out = self.out
        if kind == DATETIME2:
            return put_datetime2(out, used, data, at, meta)
        if kind == DECIMAL:
            return put_decimal(out, used, data, at, meta >> 8, meta & 0xFF)
        if kind == TIMESTAMP2:
            seconds = p[at] << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]
            stored = 0
            for i in range((meta + 1) // 2):
                stored = stored << 8 | p[at + 4 + i]
            return put_timestamp(out, used, seconds, stored, meta)
        if kind == DATE:
            seconds = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            return put_date(out, used, seconds >> 9, seconds >> 5 & 0x0F, seconds & 0x1F)
        if kind == TIME2:
            return put_time2(out, used, data, at, meta)
        if kind == TIME:
            return put_time(out, used, data, at)
        if kind == DATETIME:
            return put_datetime(out, used, data, at)
        if kind == OLD:
            digits = meta & 7
            text = old_text(meta >> 3, digits, data[at : at + old_size(meta >> 3, digits)])
            if text is None:
                return -1
            out[used : used + len(text)] = text.encode()
            return used + len(text)
        seconds = p[at] | p[at + 1] << 8 | p[at + 2] << 16 | p[at + 3] << 24
        return put_timestamp(out, used, seconds, 0, 0)

    def _length(self, columns: Columns, c: int, size: int, data: bytes, at: int, end: int) -> int:
        """Read the length in the ``size`` bytes at ``at``. The value must end before ``end``."""
        if size > end - at:
            raise self._bad(columns, c, "the length is cut")
        p = data
        length = 0
        for i in range(size - 1, -1, -1):
            length = length << 8 | p[at + i]
        left = end - at - size
        if length > left:
            raise self._bad(columns, c, f"{length} bytes do not fit into the {left} that are left")
        return length

    def _json(
        self, used: int, columns: Columns, c: int, data: bytes, at: int, end: int, before: Image | None, source: bytes
    ) -> int:
        """Read a JSON document. ``before``: the image with the document to which the bytes are changes; ``None``: they
        are a document.

        Sets ``used``. Returns the bytes that the cell takes.
        """
        meta = columns.widths[c]
        length = self._length(columns, c, meta, data, at, end)
        start = at + meta
        try:
            if not self.fits(used, columns.keyed, c, length):
                self.used = self.leave_out(used)
            elif before is None:
                self.used = self._document(used, columns, c, data, start, start + length)
            else:
                self.used = self._changed_document(used, columns, c, data, start, start + length, before, source)
        except DecodeError as error:
            raise self._bad(columns, c, error.message) from error
        return meta + length

    def _document(self, used: int, columns: Columns, c: int, data: bytes, start: int, end: int) -> int:
        """Print a document into an entry, from its length on. Returns the offset after it."""
        self._json_starts[c] = start
        self._json_ends[c] = end
        # The text begins after room for the longest lengths, which are written when its size is known.
        begin = used + _TEXT_AT
        stop = print_json(data, start, end, self.out, begin, self.most - used)
        self.room = len(self.out)
        if stop < 0 or not self.fits(used, columns.keyed, c, stop - begin):
            return self.leave_out(used)
        return self._text_at(used, begin, stop)

    def _changed_document(
        self, used: int, columns: Columns, c: int, data: bytes, start: int, end: int, before: Image, source: bytes
    ) -> int:
        """Apply changes to the former document, and print the result into an entry, from its length on. Returns the
        offset after it."""
        size = before.document_size(c)
        if size < 0:
            # The document changed, but the log lacks the result: a value without a kind (update.proto).
            self.out[used] = 0
            return used + 1
        if size + end - start > max(before.limit >> 4, _PATCHED):
            return self.leave_out(used)
        raw = apply_diffs(before.document(source, c), data, start, end).encode()
        return self._put_kept(used, _V_TEXT, columns, c, raw)

    def _text_at(self, used: int, begin: int, stop: int) -> int:
        """Complete the entry of the text that was written from ``begin`` to ``stop``. Returns the offset after the
        entry."""
        length = stop - begin
        out = self.out
        o = out
        used = put_varint(out, used, 1 + varint_size(length) + length)
        o[used] = _V_TEXT
        used = put_varint(out, used + 1, length)
        for i in range(length):
            o[used + i] = o[begin + i]
        if used + length + _ENTRY_ROOM > self.room:
            self.grow(used + length, _ENTRY_ROOM)
        return used + length

    def document_size(self, c: int) -> int:
        """The bytes of the JSON document of column ``c``; -1: the image has none."""
        return self._json_ends[c] - self._json_starts[c] if self._json_starts[c] >= 0 else -1

    def document(self, data: bytes, c: int) -> str:
        """The text of the JSON document of column ``c``. ``data``: the bytes that the image was read from."""
        start = self._json_starts[c]
        end = self._json_ends[c]
        return json_text(data, start, end) if end > start else "null"

    def _compressed(self, used: int, columns: Columns, c: int, data: bytes, at: int, end: int) -> int:
        """Read a compressed MariaDB column. Sets ``used``. Returns the bytes that the cell takes."""
        meta = columns.widths[c]
        length = self._length(columns, c, meta, data, at, end)
        try:
            raw = uncompress(memoryview(data)[at + meta : at + meta + length], self.limit)
        except (zlib.error, DecodeError) as error:
            raise self._bad(columns, c, f"the compressed value is broken: {error}") from error
        codec = columns.layout.codecs[c]
        if raw is None:
            self.used = self.leave_out(used)
            return meta + length
        tag = _V_TEXT
        if not codec or (codec == "utf-8" and not valid_utf8(raw, 0, len(raw))):
            tag = _V_BYTES
        elif codec != "utf-8":
            raw = raw.decode(codec, ERRORS).encode()
        self.used = self._put_kept(used, tag, columns, c, raw)
        return meta + length

    def _members(self, columns: Columns, c: int, kind: int, n: int) -> bytes:
        """The name of an ENUM's member, or the names of a SET's members."""
        members: list[bytes] = columns.layout.members[c]
        if kind == ENUM:
            if n > len(members):
                raise self._bad(columns, c, f"it has no member {n}")
            return members[n - 1] if n else b""
        if len(members) < 64 and n >> len(members):
            raise self._bad(columns, c, f"it has {len(members)} members and the value is 0x{n:x}")
        return b",".join([member for i, member in enumerate(members) if n >> i & 1])

    def _bad(self, columns: Columns, c: int, problem: str) -> DecodeError:
        layout = columns.layout
        where = layout.table if c < 0 else f"{layout.table}, column {layout.names[c]} ({layout.types[c]})"
        return DecodeError(f"{where}: {problem}")
