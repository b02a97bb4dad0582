"""One file: what stands at a place, what the file's head says, and what lies behind a fault."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import zstandard
from google_crc32c import value as crc32c

from datastores.rocksdb.log.wal_file import LARGE, FillResult, PayloadReader, WalFile
from tests.support.rocksdb_wal import BLOCK, WalWriter, batch, fragment, put
from wormhole.model.errors import DecodeError, SourceUnavailable


def opened(tmp_path: Path, data: bytes, number: int = 5) -> WalFile:
    path = tmp_path / f"{number:06d}.log"
    path.write_bytes(data)
    return WalFile(path, number)


def test_a_file_that_cannot_be_opened_passes_by_itself(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="cannot be opened"):
        WalFile(tmp_path / "000001.log", 1)


def test_what_is_at_a_place(tmp_path: Path) -> None:
    writer = WalWriter()
    first, second = writer.add(b"a" * 100)
    writer.add(b"b" * 100)
    end = len(writer.data)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.fill(first) is FillResult.RECORDS
    assert wal.frames.count == 2
    assert wal.fill(second) is FillResult.RECORDS
    assert wal.payload_crc(0) == crc32c(b"b" * 100)
    assert wal.fill(end) is FillResult.END
    for tail, result in (
        (bytes(50), FillResult.END),
        (b"torn", FillResult.TORN),
        (fragment(5, b"x", 4), FillResult.END),
    ):
        wal = opened(tmp_path, bytes(writer.data) + tail)
        assert wal.fill(end) is result
        assert wal.fault[0] == end
    wal.close()
    wal.close()


@pytest.mark.parametrize("size", [BLOCK, 300_000, 1 << 20, LARGE - 200, LARGE + 200_000])
def test_records_up_to_the_limit_are_held_and_larger_ones_are_measured(tmp_path: Path, size: int) -> None:
    writer = WalWriter()
    writer.add(b"first")
    payload = bytes(range(256)) * (size // 256)
    begin, end = writer.add(payload)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.fill(begin) is (FillResult.LARGE if size > LARGE else FillResult.RECORDS)
    assert wal.measure(begin) == (end, crc32c(payload))
    assert b"".join(wal.payload(begin)) == payload
    torn = opened(tmp_path, bytes(writer.data[:-1]))
    assert torn.measure(begin) is None
    with pytest.raises(DecodeError, match="was whole and is no longer"):
        list(torn.payload(begin))


def test_the_head_counts_for_a_reader_that_begins_in_the_middle(tmp_path: Path) -> None:
    writer = WalWriter(5)
    writer.meta(9, struct.pack("<I", 7))
    writer.meta(131, bytes(24))
    writer.meta(254, b"of a later release")
    writer.meta(11, struct.pack("<IHIH", 1, 8, 7, 16))
    begin, _ = writer.add(zstandard.compress(batch(77, [put(b"a", b"1")])))
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.zstd
    assert wal.timestamps == {1: 8, 7: 16}
    assert wal.fill(begin) is FillResult.RECORDS
    assert wal.batch(0, 1) == batch(77, [put(b"a", b"1")])
    assert wal.first_sequence() == 77
    writer = WalWriter()
    writer.meta(10, b"odd")
    with pytest.raises(DecodeError, match="no multiple of 6"):
        opened(tmp_path, bytes(writer.data))


def test_the_first_number_of_files_of_all_sorts(tmp_path: Path) -> None:
    assert opened(tmp_path, b"").first_sequence() is None
    assert opened(tmp_path, bytes(BLOCK)).first_sequence() is None
    writer = WalWriter(5)
    writer.add(batch(9, [put(b"a", bytes(LARGE + 1000))]))
    assert opened(tmp_path, bytes(writer.data)).first_sequence() == 9
    assert opened(tmp_path, bytes(writer.data[:-1])).first_sequence() is None
    assert opened(tmp_path, bytes(writer.data), 6).first_sequence() is None


def test_later_records_are_found_in_the_block_and_behind_it(tmp_path: Path) -> None:
    writer = WalWriter()
    first = writer.add(b"a" * 50)[1]
    second = writer.add(b"b" * 50)[0]
    assert first == second
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.later_record(3) == second
    assert wal.later_record(second) is None
    writer.add(b"c" * 3 * BLOCK)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.later_record(200) == BLOCK
    assert opened(tmp_path, bytes(writer.data[:200]) + bytes(BLOCK)).later_record(200) is None


def test_payloads_are_read_in_pieces_of_any_size() -> None:
    data = bytes(range(256)) * 50
    stored = zstandard.compress(data)
    for size in (1, 7, 1000, 1 << 20):
        plain = PayloadReader(iter([data[:100], data[100:]]), False)
        assert b"".join(iter(lambda: plain.read(size), b"")) == data  # noqa: B023
        packed = PayloadReader(iter([stored[:50], stored[50:]]), True)
        assert b"".join(iter(lambda: packed.read(size), b"")) == data  # noqa: B023
    broken = PayloadReader(iter([b"no zstd frame"]), True)
    with pytest.raises(DecodeError, match="does not decompress"):
        broken.read(10)
