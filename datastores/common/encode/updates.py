"""The encoded updates of the piece that is being encoded, by columns. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Final

from datastores.common.encode.buffer import grow
from datastores.common.encode.wire_bytes import put_varint

__all__ = ["Updates"]

_TRUNCATE: Final = 4  # wormhole.wire.v1.Op
# The buffer size that is kept for the next piece. A larger buffer was needed for one large row.
_KEPT_ROOM: Final = 1 << 20
_KEPT_ROWS: Final = 1 << 16


class Updates:
    """``count`` updates, which take ``used`` bytes of ``out``. ``ends``, ``schemas`` and ``shards`` are columns of
    `datastores.common.encode.piece.Piece`. ``room``: the initial size of ``out`` in bytes.
    """

    def __init__(self, room: int) -> None:
        self.count = 0
        self.used = 0
        self.out = bytearray(room)
        self._room = room
        self._capacity = 1024
        self._columns()

    def _columns(self) -> None:
        self.ends = array("I", bytes(4 * self._capacity))
        self.schemas = array("I", bytes(4 * self._capacity))
        self.shards = array("I", bytes(4 * self._capacity))
        self._ends = self.ends
        self._schemas = self.schemas
        self._shards = self.shards

    def begin(self, body: int) -> int:
        """Make room for an update of ``body`` bytes and write its header. Returns the offset of the body in ``out``."""
        if self.used + body + 6 > self._room:
            self._room = grow(self.out, self.used + body + 6)
        self.out[self.used] = 0x0A
        return put_varint(self.out, self.used + 1, body)

    def end(self, at: int, schema: int, shard: int) -> None:
        """End the update that was begun. ``at``: the offset after it."""
        n = self.count
        if n == self._capacity:
            ends, schemas, shards = self.ends, self.schemas, self.shards
            self._capacity = 2 * n
            self._columns()
            self.ends[:n] = ends
            self.schemas[:n] = schemas
            self.shards[:n] = shards
        self.used = at
        self._ends[n] = at
        self._schemas[n] = schema
        self._shards[n] = shard
        self.count = n + 1

    def truncate(self, schema: int, shard: int) -> None:
        """Add the update that a table was truncated."""
        at = self.begin(2)
        self.out[at] = 0x08
        self.out[at + 1] = _TRUNCATE
        self.end(at + 2, schema, shard)

    def back(self, count: int) -> None:
        """Drop all but the first ``count`` updates."""
        self.count = count
        self.used = self.ends[count - 1] if count else 0

    def drop(self, count: int) -> None:
        """Drop the first ``count`` updates, which were taken, and move the others to the front."""
        n = self.count - count
        if n:
            start = self.ends[count - 1] if count else 0
            self.out[: self.used - start] = self.out[start : self.used]
            self.used -= start
            for i in range(n):
                self._ends[i] = self._ends[count + i] - start
                self._schemas[i] = self._schemas[count + i]
                self._shards[i] = self._shards[count + i]
            self.count = n
            return
        self.count = self.used = 0
        if self._room > _KEPT_ROOM:
            self._room = _KEPT_ROOM
            self.out = bytearray(_KEPT_ROOM)
        if self._capacity > _KEPT_ROWS:
            self._capacity = _KEPT_ROWS
            self._columns()
