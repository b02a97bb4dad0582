"""The values of one row as the wire's entries. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Final

from datastores.common.encode.buffer import grow
from datastores.common.encode.wire_bytes import copy_bytes, put_varint, varint_size

__all__ = ["Entries"]

_ENTRY_ROOM: Final = 32  # for two tags and two lengths
_V_UNAVAILABLE: Final = 0x48
_SHORT: Final = 125
"""Bytes of a value up to which both lengths take one byte."""
_KEPT_ROOM: Final = 1 << 20
_KEPT_KEY: Final = 1 << 16
"""A value of the key up to this size is kept, whatever the other values of its row take."""


class Entries:
    """The row that was read last, as entries of an update's repeated field: tag, length, ``Value``.

    ``out[starts[c]:starts[c + 1]]`` is the entry of column ``c``. ``present[c]`` says whether the log has the column;
    where not, the entry is ``unavailable``, ``absent`` times. ``used``: bytes of all entries. ``limit``: bytes that one
    value may take. ``most``: bytes that all values may take together, except those of the key. ``too_large``: a value
    that did not fit was left out. ``room``: bytes of ``out``. ``capacity``: columns that there is room for.
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
        """Give the room of a large row back."""
        if self.room > _KEPT_ROOM:
            self.room = _KEPT_ROOM
            self.out = bytearray(_KEPT_ROOM)

    def grow(self, used: int, need: int) -> None:
        """Make room for ``need`` bytes behind ``used``."""
        self.room = grow(self.out, used + need)

    def fits(self, used: int, keyed: bytes, c: int, length: int) -> bool:
        """Whether a value of ``length`` bytes of column ``c`` is kept; ``keyed``: 1 for each column of the key."""
        k = keyed
        return length <= self.limit and (used + length <= self.most or (k[c] != 0 and length <= _KEPT_KEY))

    def put(self, used: int, tag: int, data: bytes, at: int, length: int) -> int:
        """Write ``data[at:at + length]`` as text or bytes, by ``tag``, from the entry's length on; returns the place
        after it."""
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
        """Write from the entry's length on that the value is not available; returns the place after it."""
        o = self.out
        o[used] = 2
        o[used + 1] = _V_UNAVAILABLE
        o[used + 2] = 1
        return used + 3

    def leave_out(self, used: int) -> int:
        """Likewise, for a value that takes too much."""
        self.too_large = True
        return self.unavailable(used)
