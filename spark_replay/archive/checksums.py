"""Checksums of the blocks of a data file, so that no byte is used without a comparison. Pure.

Parquet has checksums of pages only. They cover neither the headers of pages nor the footer with its statistics and
offsets, and not every reader compares them. So the writer computes a CRC-32 of every block while the file is written,
and the manifest keeps them. Data files are read through :class:`CheckedSource`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

__all__ = ["BLOCK_BYTES", "Blocks", "BrokenBlockError", "CheckedSource", "SummingSink", "blocks_of"]

BLOCK_BYTES: Final = 1 << 20
"""Bytes of a block. A block takes four bytes in the manifest, and is always read whole."""

_CRC_BYTES: Final = 4
_KEPT: Final = 8  # blocks in memory: adjacent columns of a row group share the block where they meet


class BrokenBlockError(OSError):
    """The bytes that were read differ from those that were written."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """``crcs``: the CRC-32 of each block of ``size`` bytes, big endian, one after the other. The last block may be
    shorter.
    """

    size: int = BLOCK_BYTES
    crcs: bytes = b""

    def of(self, number: int) -> int:
        """The CRC of a block."""
        return int.from_bytes(self.crcs[number * _CRC_BYTES : (number + 1) * _CRC_BYTES], "big")

    def cover(self, size: int) -> bool:
        """Whether the number of checksums is right for a file of ``size`` bytes."""
        return len(self.crcs) == -(-size // self.size) * _CRC_BYTES


class SummingSink:
    """A file object that writes to ``sink`` and computes checksums of the bytes. Raises the errors of ``sink``."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._crcs = bytearray()
        self._crc = 0
        self._filled = 0
        self.written = 0
        """Bytes so far."""
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Write to the sink."""
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
        """Does nothing: the store makes the file durable."""

    def close(self) -> None:
        """Mark this object as closed. The sink stays open: the code that opened it closes it."""
        self.closed = True

    def blocks(self) -> Blocks:
        """The checksums of the blocks of the file that ends here."""
        if self._filled:
            self._end_block()
        return Blocks(crcs=bytes(self._crcs))


class Source(Protocol):
    """A file with random access, such as ``pyarrow.NativeFile``."""

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """``nbytes`` bytes from ``offset`` on."""

    def close(self) -> None:
        """Close the file."""


def blocks_of(source: Source, size: int) -> Blocks:
    """The checksums of an existing file of ``size`` bytes. Raises what ``source`` raises."""
    parts = (source.read_at(min(BLOCK_BYTES, size - at), at) for at in range(0, size, BLOCK_BYTES))
    return Blocks(crcs=b"".join(zlib.crc32(part).to_bytes(_CRC_BYTES, "big") for part in parts))


class CheckedSource:
    """A file object for ``pyarrow.PythonFile`` that compares every byte with ``blocks`` before it returns it.

    ``size``: bytes of the file. :meth:`read` raises :class:`BrokenBlockError` for bytes that differ from the written
    ones, and what ``source`` raises. Not safe for threads; Arrow makes one call at a time.
    """

    def __init__(self, source: Source, size: int, blocks: Blocks) -> None:
        self._source = source
        self._size = size
        self._blocks = blocks
        self._at = 0
        self._kept: dict[int, bytes] = {}
        self.closed = False

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to ``offset``, as in any file."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """The offset at which the next read begins."""
        return self._at

    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def read(self, count: int = -1) -> bytes:
        """The next ``count`` bytes, fewer at the end; all if ``count`` is negative."""
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
        """Read the blocks that are not in memory. Adjacent blocks take one read."""
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
