"""The reader over files written by hand: the live end, files that follow, gaps, large records, shards."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from datastores.rocksdb.log.reader import RocksReader
from datastores.rocksdb.log.scan import scan_end
from tests.support.eventually import PATIENCE_S
from tests.support.present import present
from tests.support.rocksdb_wal import (
    DirectoryFiles,
    Names,
    OneTime,
    WalWriter,
    batch,
    delete,
    fragment,
    gaps_of,
    marker,
    open_reader,
    put,
    segments,
    string,
    updates_of,
)
from wormhole.model.errors import DecodeError, Diverged, UnsupportedLog
from wormhole.model.loss import LossKind
from wormhole.model.position import LogPosition
from wormhole.model.sharding import Sharding


def write(folder: Path, number: int, data: bytes) -> None:
    (folder / f"{number:06d}.log").write_bytes(data)


def numbered(first: int, count: int, log_number: int | None = None) -> WalWriter:
    writer = WalWriter(log_number)
    for i in range(first, first + count):
        writer.add(batch(i, [put(b"k%d" % i, b"v" * 50)]))
    return writer


def reader_of(folder: Path, data: bytes | bytearray, **how: Any) -> RocksReader:
    """A reader of a log of one file."""
    write(folder, 4, bytes(data))
    return open_reader(folder, **how)


def keys(found: object) -> list[object]:
    return [u.key[0] for u in updates_of(found)]  # type: ignore[arg-type]


def test_every_prefix_of_a_file_is_waited_on(tmp_path: Path) -> None:
    data = bytes(numbered(1, 5).data)
    reader = open_reader(tmp_path, marker(4, 0))
    found: list[object] = []
    for size in range(len(data) + 1):
        write(tmp_path, 4, data[:size])
        found += keys(segments(reader))
    assert found == [b"k%d" % i for i in range(1, 6)]


def test_zeros_and_half_written_bytes_at_the_live_end_are_not_yet_written(tmp_path: Path) -> None:
    writer = numbered(1, 3)
    half = bytearray(fragment(1, batch(4, [put(b"k4", b"v")])))
    half[-1] ^= 0xFF
    for tail in (bytes(5000), bytes(40_000), bytes(half), b"\x01\x02"):
        write(tmp_path, 4, bytes(writer.data) + tail)
        reader = open_reader(tmp_path)
        assert len(keys(segments(reader))) == 3
        assert reader.read(1000, 0.0) is None
        whole = numbered(1, 4)
        write(tmp_path, 4, bytes(whole.data) + bytes(100))
        assert keys(segments(reader)) == [b"k4"]
        reader.close()


def test_valid_log_behind_the_damage_proves_it(tmp_path: Path) -> None:
    data = numbered(1, 3).data
    data[80] ^= 1
    reader = reader_of(tmp_path, data)
    with pytest.raises(DecodeError, match=r"000004\.log, offset \d+: fragment header .*\[log-undecodable\]") as caught:
        list(segments(reader))
    assert caught.value.hint


def test_a_recycled_file_ends_where_the_older_log_shows(tmp_path: Path) -> None:
    old = numbered(1, 400, log_number=3).data
    new = numbered(401, 5, log_number=9).data
    write(tmp_path, 9, bytes(new) + bytes(old[len(new) :]))
    reader = open_reader(tmp_path)
    assert len(keys(segments(reader))) == 5
    longer = numbered(401, 8, log_number=9).data
    write(tmp_path, 9, bytes(longer) + bytes(old[len(longer) :]))
    assert len(keys(segments(reader))) == 3
    # An older log's rest is not damage, also when a newer file follows.
    write(tmp_path, 12, bytes(numbered(409, 2, log_number=12).data))
    assert keys(segments(reader)) == [b"k409", b"k410"]


def test_files_follow_on_each_other(tmp_path: Path) -> None:
    write(tmp_path, 4, bytes(numbered(1, 3).data))
    write(tmp_path, 7, b"")
    reader = open_reader(tmp_path)
    found = list(segments(reader))
    assert found[-1].end.file == 4  # a file that holds nothing yet is no reason to leave
    write(tmp_path, 9, bytes(numbered(4, 2).data))
    found += list(segments(reader))
    assert keys(found) == [b"k%d" % i for i in range(1, 6)]
    assert not gaps_of(found)


def test_gaps_and_going_back_are_reported(tmp_path: Path) -> None:
    found = list(segments(reader_of(tmp_path, numbered(1, 3).data + numbered(10, 2).data)))
    (gap,) = gaps_of(found)
    assert (gap.kind, gap.first_missing, gap.last_missing) == (LossKind.NOT_LOGGED, "4", "9")
    assert present(found[0].marker).delivered == "3"
    write(tmp_path, 5, bytes(numbered(7, 2).data))
    with pytest.raises(Diverged, match="sequence number 7 where 12 follows"):
        list(segments(open_reader(tmp_path)))


def test_a_file_that_is_gone_is_a_purge(tmp_path: Path) -> None:
    write(tmp_path, 9, bytes(numbered(50, 2).data))
    reader = open_reader(tmp_path, marker(4, 300, "20"))
    (gap, *_) = gaps_of(segments(reader))
    assert (gap.kind, gap.first_missing, gap.last_missing) == (LossKind.PURGED, "21", "49")
    assert open_reader(tmp_path, marker(12, 0, "60")).read(1000, 0.0) is None


def test_a_torn_end_before_a_newer_file_is_judged_by_the_numbers(tmp_path: Path) -> None:
    data = numbered(1, 3).data
    write(tmp_path, 4, bytes(data[:-4]))
    write(tmp_path, 5, bytes(numbered(3, 2).data))  # the database dropped the torn record 3 and used its number again
    assert keys(segments(open_reader(tmp_path))) == [b"k1", b"k2", b"k3", b"k4"]
    write(tmp_path, 5, bytes(numbered(4, 2).data))  # here 3 was committed
    with pytest.raises(DecodeError, match="goes on at sequence number 4 where 3 is next"):
        list(segments(open_reader(tmp_path)))


def test_a_reader_begins_anywhere_and_names_its_place(tmp_path: Path) -> None:
    whole = list(segments(reader_of(tmp_path, numbered(1, 2000).data), 1 << 14))
    everything = updates_of(whole)
    assert len(whole) > 5
    done = 0
    for segment in whole:
        done += segment.updates
        at = present(segment.marker)
        assert at.anchor is not None
        assert (at.delivered, at.anchor.id) == (str(done), f"src:{done}")
        assert updates_of(segments(open_reader(tmp_path, at))) == everything[done:]


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("sharding", [Sharding("log"), Sharding("hash", 3), Sharding("table")], ids=lambda s: s.by)
def test_a_large_record_comes_in_pieces(tmp_path: Path, sharding: Sharding, zstd: bool) -> None:
    writer = WalWriter()
    if zstd:
        writer.meta(9, struct.pack("<I", 7))

    def add(payload: bytes) -> None:
        writer.add(zstandard.compress(payload) if zstd else payload)

    add(batch(1, [put(b"before", b"x")]))
    count = 1750
    add(batch(2, [put(b"k%d" % i, bytes([i % 256]) * 4000, family=i % 2) for i in range(count)]))
    add(batch(2 + count, [delete(b"after")]))
    write(tmp_path, 4, bytes(writer.data))
    names = Names({0: "default", 1: "users"})
    found = list(segments(open_reader(tmp_path, sharding=sharding, names=names), 1 << 18))
    updates = updates_of(found)
    assert len(updates) == 2 + count
    large = sorted((u for u in updates if u.transaction == "src:2"), key=lambda u: u.index)
    assert [u.index for u in large] == list(range(count))
    assert [u.key[0] for u in large] == [b"k%d" % i for i in range(count)]
    assert sum(s.marker is None for s in found) > 20
    for shard in {u.shard for u in updates}:
        ends = 0
        for segment in found:
            if (run := segment.runs.get(shard)) is not None:
                ends += len(run.tx_end)
        assert ends == len({u.transaction for u in updates if u.shard == shard})
    inside = next(i for i, s in enumerate(found) if s.marker is None)
    assert found[inside].end == found[inside + 1].begin == found[inside + 1].end


def test_a_large_record_is_delivered_only_whole(tmp_path: Path) -> None:
    writer = numbered(1, 1)
    writer.add(batch(2, [put(b"k%d" % i, b"v" * 4000) for i in range(1500)]))
    reader = reader_of(tmp_path, writer.data[:-1])
    assert keys(segments(reader)) == [b"k1"]
    write(tmp_path, 4, bytes(writer.data))
    assert len(keys(segments(reader))) == 1500
    damaged = writer.data
    damaged[3_000_000] ^= 1
    reader = reader_of(tmp_path, damaged)
    assert present(reader.read(1 << 18, 0)).updates == 1
    with pytest.raises(DecodeError, match="wrong checksum"):
        reader.read(1 << 18, 0)


def test_a_value_of_megabytes_and_one_that_is_too_large(tmp_path: Path) -> None:
    writer = WalWriter()
    writer.add(batch(1, [put(b"a", b"1"), put(b"large", b"v" * 6_000_000), put(b"b", b"2")]))
    found = updates_of(segments(reader_of(tmp_path, writer.data)))
    assert [(u.key[0], len(u.after[0]), u.index) for u in found] == [  # type: ignore[arg-type]
        (b"a", 1, 0),
        (b"large", 6_000_000, 1),
        (b"b", 1, 2),
    ]
    reader = open_reader(tmp_path, max_update_bytes=1 << 20)
    found = updates_of(segments(reader))
    assert [(u.key[0], u.too_large, u.index) for u in found] == [
        (b"a", False, 0),
        (b"large", True, 1),
        (b"b", False, 2),
    ]
    assert reader.too_large == 1


def test_unknown_compression_is_refused_and_names_come_from_anywhere(tmp_path: Path) -> None:
    writer = WalWriter()
    writer.meta(9, struct.pack("<I", 4))
    write(tmp_path, 4, bytes(writer.data))
    with pytest.raises(UnsupportedLog, match="compressed in a way"):
        open_reader(tmp_path).read(1000, 0)
    writer = WalWriter()
    writer.meta(130, bytes(24))
    writer.meta(10, struct.pack("<IH", 3, 8))
    writer.add(batch(1, [put(b"key" + b"t" * 8, b"v", family=3), put(b"key", b"v", family=5)]))
    found = updates_of(segments(reader_of(tmp_path, writer.data, names=Names({3: "stamped"}))))
    assert [(u.table, u.key) for u in found] == [("stamped", (b"key", b"t" * 8)), ("column-family-5", (b"key",))]


@pytest.mark.parametrize("kind", [0, 12, 13, 33, 34, 127])
@pytest.mark.parametrize("first", [True, False], ids=["at the head", "at the end"])
@pytest.mark.parametrize("followed", [True, False], ids=["followed", "last"])
def test_a_record_of_an_unknown_kind_is_never_an_end(tmp_path: Path, kind: int, first: bool, followed: bool) -> None:
    write(tmp_path, 4, bytes(numbered(1, 3).data))
    second = WalWriter() if first else numbered(4, 2)
    at = len(second.data)
    second.data += fragment(kind, b"anything")
    write(tmp_path, 5, bytes(second.data))
    if followed:  # by a file whose numbers adjoin: no other sign that anything is missing
        write(tmp_path, 6, bytes(numbered(4 if first else 6, 2).data))
    reader = open_reader(tmp_path)
    before = [b"k1", b"k2", b"k3"] if first else [b"k1", b"k2", b"k3", b"k4", b"k5"]
    found: list[object] = []
    while len(found) < len(before):
        found += keys([reader.read(1 << 18, 0)])
    assert found == before
    for _ in range(2):
        with pytest.raises(DecodeError, match=rf"000005\.log, offset {at}: .* kind {kind} .*\[release-too-old\]"):
            reader.read(1 << 18, 0)


def test_fragments_that_follow_on_nothing_are_damage_at_the_live_end_too(tmp_path: Path) -> None:
    good = bytes(numbered(1, 3).data)
    for bad in (fragment(4, b"end"), fragment(2, b"begin") + fragment(130, bytes(24))):
        reader = reader_of(tmp_path, good + bad)
        assert len(keys([reader.read(1 << 18, 0)])) == 3
        with pytest.raises(DecodeError, match=r"does not follow on the fragment before it"):
            reader.read(1 << 18, 0)


def test_timestamp_sizes_before_the_place_count(tmp_path: Path) -> None:
    """A comparator of the program's own has them; only the log contains their size."""
    writer = numbered(1, 1)
    writer.meta(10, struct.pack("<IH", 3, 4))
    for i in (2, 3):
        writer.add(batch(i, [put(b"key%d" % i + b"time", b"v", family=3)]))
    whole = list(segments(reader_of(tmp_path, writer.data), max_bytes=1))
    places = [segment.marker for segment in whole]
    assert updates_of(whole)[1:] == updates_of(segments(open_reader(tmp_path, places[0])))
    last = updates_of(segments(open_reader(tmp_path, places[1])))
    assert [u.key for u in last] == [(b"key3", b"time")]


def per_batch(sequence: int, keys: int) -> bytes:
    """A batch as write-prepared databases log it: one sequence number for all, and a no-op behind them."""
    return batch(sequence, [put(b"k%d" % n, b"v") for n in range(keys)] + [b"\x0d"], keys)


@pytest.mark.parametrize("together", [True, False], ids=["in one file", "in two files"])
def test_a_database_that_numbers_batches_is_refused_as_such(tmp_path: Path, together: bool) -> None:
    writer = WalWriter()
    writer.add(per_batch(1, 1))  # as if it numbered keys
    writer.add(per_batch(2, 3))
    if not together:
        write(tmp_path, 4, bytes(writer.data))
        writer = WalWriter()
    writer.add(per_batch(3, 1))
    write(tmp_path, 4 if together else 5, bytes(writer.data))
    reader = open_reader(tmp_path)
    with pytest.raises(UnsupportedLog, match="numbers batches"):
        list(segments(reader))
    with pytest.raises(UnsupportedLog, match="numbers batches"):
        scan_end(DirectoryFiles(tmp_path), source_id="src", incarnation=1)


def test_a_commit_whose_prepare_is_gone_is_reported(tmp_path: Path) -> None:
    writer = WalWriter()
    writer.add(batch(5, [b"\x0b" + string(b"lost")], count=0))
    writer.add(batch(9, [put(b"a", b"1")]))
    found = list(segments(reader_of(tmp_path, writer.data)))
    (gap,) = gaps_of(found)
    assert (gap.kind, gap.first_missing) == (LossKind.PURGED, "5")
    assert "lost" in gap.message
    assert keys(found) == [b"a"]


def test_broken_records_name_file_place_and_field(tmp_path: Path) -> None:
    writer = numbered(1, 2)
    begin, _ = writer.add(batch(3, [b"\x01\x7fkey"], count=1))
    reader = reader_of(tmp_path, writer.data)
    assert len(keys([reader.read(1000, 0)])) == 2
    with pytest.raises(DecodeError, match=rf"000004\.log, offset {begin}: .*\[log-undecodable\]"):
        reader.read(1000, 0)


def test_close_ends_a_waiting_read(tmp_path: Path) -> None:
    write(tmp_path, 4, b"")
    files = DirectoryFiles(tmp_path)
    reader = open_reader(tmp_path, files=files)
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(reader.read(1000, 86_400.0)))
    thread.start()
    reader.close()
    thread.join(PATIENCE_S)
    assert result == [None]
    assert reader.read(1000, 86_400.0) is None


class Steps(OneTime):
    """A clock whose time rises every 3000 bytes."""

    def committed_at(self, position: LogPosition, live: bool) -> int:
        return position.offset // 3000


def test_commit_times_are_those_of_their_places_however_it_is_cut(tmp_path: Path) -> None:
    write(tmp_path, 4, bytes(numbered(1, 900).data))
    for max_bytes in (1 << 10, 1 << 18):
        for segment in segments(open_reader(tmp_path, times=Steps()), max_bytes):
            for run in segment.runs.values():
                assert run.tx_committed_at_us.tolist() == [offset // 3000 for offset in run.tx_offset]
            assert segment.newest_us == segment.end.offset // 3000
