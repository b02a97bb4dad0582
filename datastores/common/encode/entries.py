"""Encodes the values of one row as entries of an update's message. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Final

from datastores.common.encode.buffer import grow
from datastores.common.encode.wire_bytes import copy_bytes, put_varint, varint_size

__all__ = ["Entries"]

_ENTRY_ROOM: Final = 32  # bytes for two tags and two length prefixes
_V_UNAVAILABLE: Final = 0x48
_SHORT: Final = 125
"""The most bytes of a value whose two length prefixes take one byte each."""
_KEPT_ROOM: Final = 1 << 20
_KEPT_KEY: Final = 1 << 16
"""A key's value of at most this many bytes is kept, however large the row's other values are."""


class Entries:
    """The row that was read last, as entries of an update's repeated field: tag, length, ``Value``.

    ``out[starts[c]:starts[c + 1]]`` is the entry of column ``c``. ``present[c]``: whether the log has the column. A
    column that the log lacks has the entry ``unavailable``; ``absent`` counts these columns. ``used``: bytes of all
    entries. ``limit``: the most bytes of one value. ``most``: the most bytes of all values together, without those of
    the key. ``too_large``: whether a value was left out because it did not fit. ``room``: bytes of ``out``.
    ``capacity``: the number of columns that the arrays have room for.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.most = limit
        self.used = 0
        self.absent = 0
        self.too_large = False
        self.room = 4096
        self.out = bytearray(self.room)
        self.capacity = 0
        self.hold(64)

    def hold(self, count: int) -> None:
        """Make room for ``count`` columns."""
        self.capacity = count
        self.start_array = array("I", bytes(4 * (count + 1)))
        self.starts = self.start_array
        self.present = bytearray(count)

    def release(self) -> None:
        """Release the memory that a large row took."""
        if self.room > _KEPT_ROOM:
            self.room = _KEPT_ROOM
            self.out = bytearray(_KEPT_ROOM)

    def grow(self, used: int, need: int) -> None:
        """Make room for ``need`` bytes after the first ``used``."""
        self.room = grow(self.out, used + need)

    def fits(self, used: int, keyed: bytes, c: int, length: int) -> bool:
        """Whether a value of ``length`` bytes of column ``c`` is kept. ``keyed``: 1 for a column of the key."""
        k = keyed
        return length <= self.limit and (used + length <= self.most or (k[c] != 0 and length <= _KEPT_KEY))

    def put(self, used: int, tag: int, data: bytes, at: int, length: int) -> int:
        """Write ``data[at:at + length]`` as text or bytes, by ``tag``, with its length prefixes. Returns the
        next offset."""
        if used + length + _ENTRY_ROOM > self.room:
            self.grow(used, length + _ENTRY_ROOM)
        out = self.out
        o = out
        if length > _SHORT:
            used = put_varint(out, used, 1 + varint_size(length) + length)
            o[used] = tag
            used = put_varint(out, used + 1, length)
            return copy_bytes(out, used, data, at, at + length)
        p = data
        o[used] = length + 2
        o[used + 1] = tag
        o[used + 2] = length
        used += 3
        for i in range(length):
            o[used + i] = p[at + i]
        return used + length

    def unavailable(self, used: int) -> int:
        """Write an entry, beginning with its length, whose value is not available. Returns the offset after it."""
        o = self.out
        o[used] = 2
        o[used + 1] = _V_UNAVAILABLE
        o[used + 2] = 1
        return used + 3

    def leave_out(self, used: int) -> int:
        """Write an entry whose value is too large. Returns the offset after it."""
        self.too_large = True
        return self.unavailable(used)
