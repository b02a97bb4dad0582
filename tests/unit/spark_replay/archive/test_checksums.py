"""No byte is read that was not compared."""

from __future__ import annotations

import io
from random import Random

import pyarrow as pa
import pytest

from spark_replay.archive.checksums import BLOCK_BYTES, NO_BLOCKS, Blocks, BrokenBlockError, CheckedSource, SummingSink


def summed(data: bytes, pieces: int = 1) -> Blocks:
    kept = io.BytesIO()
    sink = SummingSink(kept)
    step = len(data) // pieces + 1
    for at in range(0, len(data), step):
        assert sink.write(data[at : at + step]) == len(data[at : at + step])
    assert (kept.getvalue(), sink.written) == (data, len(data))
    return sink.blocks()


def opened(data: bytes, blocks: Blocks) -> CheckedSource:
    return CheckedSource(pa.PythonFile(io.BytesIO(data), mode="r"), len(data), blocks)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7])
def test_the_checksums_do_not_depend_on_how_the_bytes_come(size: int) -> None:
    data = Random(size).randbytes(size)
    blocks = summed(data)
    assert summed(data, 1000) == blocks
    assert blocks.cover(size)
    assert not blocks.cover(size + BLOCK_BYTES)
    assert bool(blocks) is bool(size)
    opened(data, blocks).check()


def test_reads_of_any_part_are_those_of_the_file() -> None:
    chance = Random(7)
    data = chance.randbytes(12 * BLOCK_BYTES + 5)
    source = opened(data, summed(data))
    for _ in range(200):
        at, count = chance.randrange(len(data) + 10), chance.choice([0, 1, 100, BLOCK_BYTES, 3 * BLOCK_BYTES, -1])
        assert source.seek(at) == source.tell() == at
        assert source.read(count) == (data[at:] if count < 0 else data[at : at + count])
    assert (source.seek(-5, 2), source.read()) == (len(data) - 5, data[-5:])
    assert source.size() == len(data)


def test_what_is_in_memory_does_not_grow_with_the_file() -> None:
    data = bytes(20 * BLOCK_BYTES)
    source = opened(data, summed(data))
    source.check()
    assert len(source._kept) == 8


def test_only_the_blocks_that_are_asked_for_are_read() -> None:
    data = bytearray(Random(1).randbytes(3 * BLOCK_BYTES))
    blocks = summed(bytes(data))
    data[BLOCK_BYTES + 9] ^= 1
    source = opened(bytes(data), blocks)
    assert source.read(BLOCK_BYTES) == data[:BLOCK_BYTES]
    source.seek(2 * BLOCK_BYTES)
    assert source.read() == data[2 * BLOCK_BYTES :]
    source.seek(BLOCK_BYTES - 1)
    with pytest.raises(BrokenBlockError, match=r"bytes 1,048,576 to 2,097,152 are not those that were written"):
        source.read(2)
    with pytest.raises(BrokenBlockError):
        source.check()


@pytest.mark.parametrize("seed", range(5))
def test_every_flipped_bit_is_found(seed: int) -> None:
    chance = Random(seed)
    data = bytearray(chance.randbytes(BLOCK_BYTES + 1000))
    blocks = summed(bytes(data))
    for _ in range(20):
        at, bit = chance.randrange(len(data)), 1 << chance.randrange(8)
        data[at] ^= bit
        with pytest.raises(BrokenBlockError):
            opened(bytes(data), blocks).check()
        data[at] ^= bit


def test_a_source_that_ends_early_is_reported() -> None:
    data = bytes(100)
    source = CheckedSource(pa.PythonFile(io.BytesIO(data[:50]), mode="r"), 100, summed(data))
    with pytest.raises(BrokenBlockError):
        source.read()
    source.close()
    assert source.closed


def test_a_file_of_an_earlier_release_has_none() -> None:
    assert not NO_BLOCKS
