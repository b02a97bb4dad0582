"""Checksums of the blocks of a data file, so that no byte is read that was not compared. Pure.

Parquet has checksums of pages alone. None of them covers a page's header, or the footer with its statistics and
offsets; and readers differ
in whether they compare any. So the writer takes a CRC-32 of every block of the file while it goes to the storage, the
manifest keeps them,
and what reads a data file reads it through :class:`CheckedSource`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

__all__ = ["BLOCK_BYTES", "NO_BLOCKS", "Blocks", "BrokenBlockError", "CheckedSource", "SummingSink", "blocks_of"]

BLOCK_BYTES: Final = 1 << 20
"""Bytes of a block. It costs four bytes in the manifest, and is read whole when anything in it is."""

_CRC_BYTES: Final = 4
_KEPT: Final = 8  # blocks in memory: columns of a row group lie side by side, and share the blocks where they meet


class BrokenBlockError(OSError):
    """What was read is not what was written."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """``crcs``: the CRC-32 of each block of ``size`` bytes, big endian, one after the other; the last block may be
    shorter. Empty: the file
    was written by a release that kept none."""

    size: int = BLOCK_BYTES
    crcs: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.crcs)

    def of(self, number: int) -> int:
        """The CRC of a block."""
        return int.from_bytes(self.crcs[number * _CRC_BYTES : (number + 1) * _CRC_BYTES], "big")

    def cover(self, size: int) -> bool:
        """Whether they are those of a file of so many bytes."""
        return len(self.crcs) == -(-size // self.size) * _CRC_BYTES


NO_BLOCKS: Final = Blocks()


class SummingSink:
    """A sink that takes the checksums of what passes. Raises what ``sink`` raises."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._crcs = bytearray()
        self._crc = 0
        self._filled = 0
        self.written = 0
        """Bytes so far."""
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Hand on."""
        view = memoryview(data)
        self._sink.write(view)
        self.written += view.nbytes
        while view.nbytes:
            part = view[: BLOCK_BYTES - self._filled]
            self._crc = zlib.crc32(part, self._crc)
            self._filled += part.nbytes
            if self._filled == BLOCK_BYTES:
                self._end_block()
            view = view[part.nbytes :]
        return memoryview(data).nbytes

    def _end_block(self) -> None:
        self._crcs += self._crc.to_bytes(_CRC_BYTES, "big")
        self._crc = self._filled = 0

    def flush(self) -> None:
        """What is durable, and when, is the store's business."""

    def close(self) -> None:
        """The sink stays open: who opened it closes it."""
        self.closed = True

    def blocks(self) -> Blocks:
        """The checksums of the blocks of the file that ends here."""
        if self._filled:
            self._end_block()
        return Blocks(crcs=bytes(self._crcs))


class Source(Protocol):
    """What is read at random, such as ``pyarrow.NativeFile``."""

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Bytes from a place on."""

    def close(self) -> None:
        """Let it go."""


def blocks_of(source: Source, size: int) -> Blocks:
    """The checksums of a file that is there, of ``size`` bytes. Raises what ``source`` raises."""
    parts = (source.read_at(min(BLOCK_BYTES, size - at), at) for at in range(0, size, BLOCK_BYTES))
    return Blocks(crcs=b"".join(zlib.crc32(part).to_bytes(_CRC_BYTES, "big") for part in parts))


class CheckedSource:
    """A file object for ``pyarrow.PythonFile`` of whose bytes each was compared with ``blocks``, which are of a file of
    ``size`` bytes.

    :meth:`read` raises :class:`BrokenBlockError` for bytes that are not those that were written, and what ``source``
    raises. Not safe for
    threads; Arrow asks for one thing at a time.
    """

    def __init__(self, source: Source, size: int, blocks: Blocks) -> None:
        self._source = source
        self._size = size
        self._blocks = blocks
        self._at = 0
        self._kept: dict[int, bytes] = {}
        self.closed = False

    def seek(self, offset: int, whence: int = 0) -> int:
        """As of any file."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def read(self, count: int = -1) -> bytes:
        """So many bytes, fewer at the end; all for a negative number."""
        end = self._size if count < 0 else min(self._at + count, self._size)
        if self._at >= end:
            return b""
        size, begin = self._blocks.size, self._at
        first, behind = begin // size, -(-end // size)
        self._fetch(first, behind)
        parts = [
            memoryview(self._kept[number])[max(0, begin - number * size) : end - number * size]
            for number in range(first, behind)
        ]
        self._at = end
        found = parts[0].tobytes() if len(parts) == 1 else b"".join(parts)
        for number in list(self._kept)[: max(0, len(self._kept) - _KEPT)]:
            del self._kept[number]
        return found

    def check(self) -> None:
        """Compare the whole file. Raises as :meth:`read`."""
        for offset in range(0, self._size, self._blocks.size):
            self.seek(offset)
            self.read(self._blocks.size)

    def close(self) -> None:
        """Close the source too. Idempotent."""
        self.closed = True
        self._kept.clear()
        self._source.close()

    def _fetch(self, first: int, behind: int) -> None:
        """Blocks that are not in memory: those that adjoin by one read."""
        wanted = [number for number in range(first, behind) if number not in self._kept]
        while wanted:
            count = next((i for i, number in enumerate(wanted) if number != wanted[0] + i), len(wanted))
            run, wanted = wanted[:count], wanted[count:]
            size = self._blocks.size
            offset = run[0] * size
            data = self._source.read_at(min(len(run) * size, self._size - offset), offset)
            for i, number in enumerate(run):
                block = data[i * size : (i + 1) * size]
                if len(block) != min(size, self._size - number * size) or zlib.crc32(block) != self._blocks.of(number):
                    raise BrokenBlockError(
                        f"bytes {number * size:,} to {min(self._size, (number + 1) * size):,} are not those that were "
                        "written: their checksum differs from the one that was kept; it is damaged, or another file"
                    )
                self._kept[number] = block
