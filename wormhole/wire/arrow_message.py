"""Makes record batches, tables of updates, in Arrow's exchange format (IPC), without pyarrow. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct

from wormhole.wire.columns import bits_of_bytes
from wormhole.wire.values import Ints

__all__ = ["Message", "Names"]


@dataclass(slots=True, frozen=True)
class Names:
    """Joined texts, and the end of each text."""

    joined: bytes
    ends: array[int]
    longest: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        encoded = [text.encode() for text in texts]
        ends = array("i", accumulate(map(len, encoded)))
        return cls(b"".join(encoded), ends, max(map(len, encoded), default=0))


class Message:
    """A record batch in Arrow's exchange format (IPC: a message of format version 5, not compressed).

    pyarrow makes all arrays of a batch from it in one call, which takes a third of the time of a call for each. The
    order of the columns is that of the schema.
    """

    # The layout of a message's fields is fixed by these tables of a flatbuffer. A Message has version, header (its type
    # and offset) and the bytes of the body. The header, a RecordBatch, has its rows, nodes and buffers. Each node is
    # two numbers, and so is each buffer.
    _PREFIX = Struct("<ii I6H iI q hBx 4x 5H6x iI q I").pack
    _NODES_AT = 8 + 76
    _VERSION, _RECORD_BATCH = 4, 3

    def __init__(self, rows: int, pairs: int, most: int) -> None:
        """``pairs``: limit of nodes and buffers. ``most``: limit of the bytes of the body."""
        self.rows = rows
        self.body = self.at = aligned(self._NODES_AT + 4 + 4 + 4 + 16 * pairs, 64)
        self.out = bytearray(self.body + aligned(most + 64, 8))
        self.nodes: list[int] = []
        self.buffers: list[int] = []

    def node(self, nulls: int = 0, rows: int = -1) -> None:
        """Begin a column."""
        self.nodes += (self.rows if rows < 0 else rows, nulls)

    def empty(self) -> None:
        """Add a buffer of 0 bytes, for content that is left out."""
        self.buffers += (self.at - self.body, 0)

    def buffer(self, size: int) -> int:
        """Add a buffer of 0s. Returns where it begins."""
        begin = self.at
        self.buffers += (begin - self.body, size)
        self.at = aligned(begin + size, 8)
        if self.at > len(self.out):
            raise ValueError(f"{len(self.out)} bytes are too few for a buffer of {size} bytes at {begin}")
        return begin

    def fill(self, content: bytes | bytearray | Ints) -> None:
        """Add a buffer with this content."""
        view = memoryview(content).cast("B")
        begin = self.buffer(len(view))
        self.out[begin : begin + len(view)] = view

    def room(self, size: int) -> None:
        """Add ``size`` to the limit of the bytes of the body."""
        self.out.extend(bytes(aligned(size, 8)))

    def text(self, offsets: int, end: int, count: int) -> None:
        """Add the two buffers of ``count`` texts that were written from ``offsets``, the free place, to ``end``."""
        assert self.buffer(4 * count + 4) == offsets
        self.buffer(end - self.at)

    def flags(self, values: bytearray | None) -> None:
        """Add a column of booleans; ``None``: all false."""
        self.node()
        self.empty()
        at = self.buffer((self.rows + 7) // 8)
        if values is not None:
            bits_of_bytes(values, 0, self.rows, self.out, at)

    def written(self) -> bytearray:
        """The whole message, for ``pyarrow.ipc.read_record_batch``, which keeps these bytes."""
        out, nodes, buffers = self.out, self.nodes, self.buffers
        several = array("q", nodes).tobytes()
        buffers_at = self._NODES_AT + 4 + len(several) + 4
        if buffers_at + 4 + 8 * len(buffers) > self.body:
            raise ValueError(f"{len(buffers) // 2} buffers do not fit their message")
        # fmt: off
        out[: self._NODES_AT] = self._PREFIX(
            -1, self.body - 8, 16, 12, 20, 16, 18, 4, 8, 12, 36, self.at - self.body, self._VERSION, self._RECORD_BATCH,
            10, 20, 8, 4, 16, 16, 16, self.rows, buffers_at - 8 - 72,
        )
        # fmt: on
        begin = self._NODES_AT
        out[begin : begin + 4] = (len(nodes) // 2).to_bytes(4, "little")
        out[begin + 4 : buffers_at - 4] = several
        out[buffers_at : buffers_at + 4] = (len(buffers) // 2).to_bytes(4, "little")
        out[buffers_at + 4 : buffers_at + 4 + 8 * len(buffers)] = array("q", buffers).tobytes()
        del out[self.at :]
        return out


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to
