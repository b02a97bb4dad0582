"""Reads one tuple of pgoutput and encodes its texts as values of an update. Hot: compiled where possible.

    tuple  := number of columns (2) column*
    column := 'n' | 'u' | 't' length (4) text         NULL, unchanged TOAST (not in the log), a value

A column becomes an entry of an update's repeated field: tag, length, ``Value`` (``wormhole.wire.v1``). So a whole tuple
can be copied into an update, and the key's columns can be copied alone with another tag.

Text is converted from the database's encoding. A value that is not valid text (possible in SQL_ASCII or WIN1252) is
sent as bytes, so that no byte is lost.
"""

from __future__ import annotations

from array import array
from typing import Final

from datastores.common.encode.entries import Entries
from datastores.common.encode.wire_bytes import is_ascii, put_varint, valid_utf8, varint_size
from datastores.postgres.decode.kinds import BOOL, BYTES, DECIMAL, DOUBLE, INT, TEXT
from datastores.postgres.decode.table import Table
from wormhole.model.errors import DecodeError

__all__ = ["Image"]

_ENTRY_ROOM: Final = 32  # bytes for two tags, two lengths and a number

# Tags of Value's fields.
_V_BYTES: Final = 0x0A
_V_TEXT: Final = 0x12
_V_INT: Final = 0x18
_V_UINT: Final = 0x20
_V_DOUBLE: Final = 0x29
_V_BOOL: Final = 0x30
_V_DECIMAL: Final = 0x3A
_V_NULL: Final = 0x40

_NULL: Final = 0x6E
_UNCHANGED: Final = 0x75
_VALUE: Final = 0x74
_BINARY: Final = 0x62

_LIMIT: Final = (1 << 31) - 1
_SHOWN: Final = 40
"""The most bytes of a value that an error message shows."""
_DIGITS: Final = 19
_LARGEST: Final = (1 << 63) - 1
_NOT_FINITE: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
# The value of each hexadecimal digit of a bytea's text; 16: no digit.
_HEX: Final = bytes(int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 16 for c in range(256))


class Image(Entries):
    """The last tuple that was read."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._double_array = array("d", [0.0])
        self._double = self._double_array
        self._double_byte_view = memoryview(self._double_array).cast("B")
        self._double_bytes = self._double_byte_view

    def read(self, data: bytes, at: int, end: int, table: Table, tag: int, key_only: bool) -> int:
        """Read the tuple at ``at`` into entries with ``tag``. Returns the offset after it.

        ``key_only``: a key tuple, whose other columns are NULL and meaningless. Raises :class:`DecodeError` with table
        and column.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"tuple {at}:{end} of {len(data)} bytes is out of range")
        if table.count > self.capacity:
            self.hold(table.count)
        self.release()
        p = data
        kinds = table.kinds
        identity = table.identity
        starts = self.starts
        here = self.present
        self.absent = 0
        self.too_large = False
        if end - at < 2:
            raise self._bad(table, -1, "the number of columns is cut")
        count = p[at] << 8 | p[at + 1]
        at += 2
        if count != table.count:
            raise self._bad(table, -1, f"its row has {count} columns, its Relation message has {table.count}")
        used = 0
        out = self.out
        o = out
        for c in range(count):
            starts[c] = used
            if used + _ENTRY_ROOM > self.room:
                self.grow(used, _ENTRY_ROOM)
                out = self.out
                o = out
            o[used] = tag
            if at == end:
                raise self._bad(table, c, "it is missing")
            form = p[at]
            at += 1
            if form != _VALUE:
                if form not in (_NULL, _UNCHANGED):
                    raise self._bad(table, c, self._of_form(form))
                if form == _UNCHANGED or (key_only and not identity[c]):
                    here[c] = 0
                    self.absent += 1
                    used = self.unavailable(used + 1)
                    continue
                here[c] = 1
                o[used + 1] = 2
                o[used + 2] = _V_NULL
                o[used + 3] = 1
                used += 4
                continue
            here[c] = 1
            if end - at < 4:
                raise self._bad(table, c, "its length is cut")
            length = p[at]  # in steps, because a compiled shift of a byte has 32 bits and a sign
            length = length << 8 | p[at + 1]
            length = length << 8 | p[at + 2]
            length = length << 8 | p[at + 3]
            at += 4
            if length > end - at:
                raise self._bad(table, c, f"{length} bytes do not fit into the {end - at} that are left")
            kind = kinds[c]
            if kind == INT:
                used = self._int(used, table, c, data, at, length)
            elif kind == TEXT:
                used = self._string(used + 1, table, c, data, at, length)
                out = self.out
                o = out
            elif kind == BOOL:
                if length != 1 or (p[at] != 0x74 and p[at] != 0x66):
                    raise self._none(table, c, data, at, length)
                o[used + 1] = 2
                o[used + 2] = _V_BOOL
                o[used + 3] = p[at] == 0x74
                used += 4
            elif kind == DOUBLE:
                used = self._float(used, table, c, data, at, length)
            else:
                if kind == BYTES:
                    used = self._hex(used + 1, table, c, data, at, length)
                elif kind == DECIMAL:
                    used = self._decimal(used + 1, table, c, data, at, length)
                else:
                    used = self._uint(used, table, c, data, at, length)
                out = self.out
                o = out
            at += length
        starts[count] = used
        self.used = used
        return at

    # --- values: each writes an entry from its tag on (strings: from its length on), and returns the offset after it -

    def _int(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        p = data
        o = self.out
        end = at + length
        begin = at
        negative = length > 1 and p[at] == 0x2D
        if negative:
            at += 1
        if at == end or end - at > _DIGITS:
            raise self._none(table, c, data, begin, length)
        n = 0
        while at < end:
            if p[at] < 0x30 or p[at] > 0x39:
                raise self._none(table, c, data, begin, length)
            n = n * 10 + (p[at] - 0x30)
            at += 1
        if n > _LARGEST and not (negative and n == _LARGEST + 1):
            raise self._none(table, c, data, begin, length)
        # Zigzag encoding: the lowest bit is the sign.
        n = n - 1 << 1 | 1 if negative and n else n << 1
        o[used + 2] = _V_INT
        stop = put_varint(self.out, used + 3, n)
        o[used + 1] = stop - used - 2
        return stop

    def _uint(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        raw = data[at : at + length]
        if not raw.isdigit() or length > _DIGITS + 1 or int(raw) >> 64:
            raise self._none(table, c, data, at, length)
        n = int(raw)
        o = self.out
        if n > _LARGEST:
            o[used + 2] = _V_UINT
        else:
            o[used + 2] = _V_INT
            n = n << 1
        stop = put_varint(self.out, used + 3, n)
        o[used + 1] = stop - used - 2
        return stop

    def _float(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        """Copy a float4 as a double. Its text has the fewest digits that identify it, so both print the same."""
        o = self.out
        try:
            self._double[0] = float(data[at : at + length])
        except ValueError:
            raise self._none(table, c, data, at, length) from None
        o[used + 1] = 9
        o[used + 2] = _V_DOUBLE
        for i in range(8):
            o[used + 3 + i] = self._double_bytes[i]
        return used + 11

    def _decimal(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        p = data
        digits = 0
        points = 0
        for i in range(at, at + length):
            if 0x30 <= p[i] <= 0x39:
                digits += 1
            elif p[i] == 0x2E:
                points += 1
            elif p[i] != 0x2D or i > at:
                points = 2
                break
        tag = _V_DECIMAL
        if not digits or points > 1:
            if data[at : at + length] not in _NOT_FINITE:
                raise self._none(table, c, data, at, length)
            tag = _V_TEXT
        if not self.fits(used, table.keyed, c, length):
            return self.leave_out(used)
        return self.put(used, tag, data, at, length)

    def _string(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        if not self.fits(used, table.keyed, c, length):
            return self.leave_out(used)
        tag = _V_TEXT
        if not is_ascii(data, at, at + length):
            if table.to_utf8 is not None:
                converted = table.to_utf8(data[at : at + length])
                if converted is not None:
                    if not self.fits(used, table.keyed, c, len(converted)):
                        return self.leave_out(used)
                    return self.put(used, tag, converted, 0, len(converted))
                tag = _V_BYTES
            elif not valid_utf8(data, at, at + length):
                tag = _V_BYTES
        return self.put(used, tag, data, at, length)

    def _hex(self, used: int, table: Table, c: int, data: bytes, at: int, length: int) -> int:
        p = data
        h = _HEX
        if length < 2 or length & 1 or p[at] != 0x5C or p[at + 1] != 0x78:
            raise self._none(table, c, data, at, length)
        size = (length - 2) // 2
        if not self.fits(used, table.keyed, c, size):
            return self.leave_out(used)
        if used + size + _ENTRY_ROOM > self.room:
            self.grow(used, size + _ENTRY_ROOM)
        out = self.out
        o = out
        used = put_varint(out, used, 1 + varint_size(size) + size)
        o[used] = _V_BYTES
        used = put_varint(out, used + 1, size)
        wrong = 0
        place = at + 2
        for i in range(size):
            high = h[p[place]]
            low = h[p[place + 1]]
            wrong |= high | low
            o[used + i] = (high & 0x0F) << 4 | low & 0x0F
            place += 2
        if wrong & 0x10:
            raise self._none(table, c, data, at, length)
        return used + size

    # --- messages

    def _of_form(self, form: int) -> str:
        if form == _BINARY:
            return "it is in binary format, which was not asked for"
        return f"its format 0x{form:02x} is not known"

    def _none(self, table: Table, c: int, data: bytes, at: int, length: int) -> DecodeError:
        shown = data[at : at + min(length, _SHOWN)]
        return self._bad(table, c, f"{shown!r} of {length} bytes is no value of its type")

    def _bad(self, table: Table, c: int, problem: str) -> DecodeError:
        where = table.name if c < 0 else f"{table.name}, column {table.columns[c]}"
        return DecodeError(f"{where}: {problem}", tables=(table.name,))
