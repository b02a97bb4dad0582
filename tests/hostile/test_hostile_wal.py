"""RocksDB's write-ahead log made to exhaust its reader: large values, and records of very many fragments."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from datastores.rocksdb.log import wal_file
from datastores.rocksdb.log.wal_file import WalFile
from tests.support.rocksdb_wal import WalWriter, batch, fragment, open_reader, put, segments

MIB = 1 << 20
BOUND = 24 * MIB


@pytest.mark.parametrize("size", [BOUND - 4096, 3 * BOUND])
def test_a_value_takes_twice_the_largest_update(tmp_path: Path, size: int) -> None:
    writer = WalWriter()
    writer.add(batch(1, [put(b"a", b"small"), put(b"b", bytes(size)), put(b"c", b"small")]))
    (tmp_path / "000004.log").write_bytes(bytes(writer.data))
    del writer
    reader = open_reader(tmp_path, max_update_bytes=BOUND)
    updates = sizes = 0
    tracemalloc.start()
    try:
        for segment in segments(reader):
            for run in segment.runs.values():
                updates += len(run.ends)
                sizes += len(run.blob)
            del segment
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert updates == 3
    assert (sizes > size) == (size < BOUND)
    assert peak < 2 * BOUND + 12 * MIB


def test_a_record_of_very_small_fragments_is_read_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 fragments were taken of each 256 KiB that were read: 512 bytes of log, where each fragment holds one byte."""
    monkeypatch.setattr(wal_file, "_MOST", 256 << 10)
    payload = batch(1, [put(b"key", b"x" * 460_000)])
    data = bytearray()
    at = 0
    while at < len(payload):
        size = 32768 - 7 if at < 400_000 else 1
        data += fragment(2 if not at else 4 if at + size >= len(payload) else 3, payload[at : at + size])
        at += size
    (tmp_path / "000004.log").write_bytes(bytes(data))
    read = 0
    pread = WalFile._pread

    def counted(self: WalFile, size: int, at: int) -> bytes:
        nonlocal read
        piece = pread(self, size, at)
        read += len(piece)
        return piece

    monkeypatch.setattr(WalFile, "_pread", counted)
    found = list(segments(open_reader(tmp_path)))
    assert sum(len(run.ends) for segment in found for run in segment.runs.values()) == 1
    assert read < 12 * len(data)
