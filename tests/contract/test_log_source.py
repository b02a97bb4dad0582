"""The contract of `wormhole.ports.log_source`, over every implementation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import DatabaseServer
from tests.support.log_reading import Read, read_until
from tests.support.log_source_harness import Harness, make_harness
from wormhole.model.errors import Diverged, PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding, shard_of_hash
from wormhole.ports.log_source import LogSource

Maker = Callable[..., Harness]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    """The database servers by flavour: to start one for each test would take seconds each time."""
    started: dict[str, DatabaseServer] = {}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture(
    params=[
        "memory",
        "jsonlines",
        "rocksdb",
        pytest.param("mariadb"),
        pytest.param("mysql"),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path, servers: dict[str, DatabaseServer]) -> Iterator[Maker]:
    made: list[Harness] = []

    def maker(sharding: Sharding | None = None) -> Harness:
        made.append(make_harness(request.param, tmp_path, sharding or Sharding("log"), servers))
        return made[-1]

    yield maker
    for harness in made:
        harness.close()


def read_all(source: LogSource, marker: Datamarker, max_bytes: int = 1 << 20) -> Read:
    reader = source.open(marker)
    try:
        return read_until(reader, source.latest().order, max_bytes=max_bytes, into=Read(last_end=marker.order))
    finally:
        reader.close()


def put(harness: Harness, first: int, count: int, table: str = "a") -> None:
    for n in range(first, first + count):
        harness.commit([("put", table, b"%04d" % n, b"v%d" % n)])


def mixed(harness: Harness) -> int:
    """Transactions of one to three updates over both tables and several files; returns the number of updates."""
    updates = 0
    for n in range(60):
        changes: list[Any] = [("put", "ab"[k % 2], b"%04d" % (n * 10 + k), b"v" * n) for k in range(n % 3 + 1)]
        if n % 7 == 6:
            changes.append(("delete", "a", b"%04d" % ((n - 1) * 10)))
        harness.commit(changes)
        updates += len(changes)
        if n % 20 == 19:
            harness.rotate()
    return updates


class TestOrder:
    def test_everything_once_in_commit_order(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        updates = mixed(harness)
        read = read_all(harness.source, start)
        assert len(read.updates) == updates
        assert len(set(read.ids())) == updates
        puts = [bytes(str(u.key[0]), "ascii") for u in read.updates if u.op == harness.put]
        assert puts == sorted(puts)
        assert len(read.ended) == 60
        assert not read.gaps

    def test_small_pieces_give_the_same_as_large_ones(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        mixed(harness)
        assert read_all(harness.source, start, 64).updates == read_all(harness.source, start).updates

    def test_the_values_and_operations_arrive(self, make: Maker) -> None:
        harness = make()
        harness.commit([("put", "b", b"x", b"")])
        start = harness.source.latest()
        harness.commit([("put", "a", b"k", b"v"), ("delete", "b", b"x"), ("put", "b", b"", b"")])
        read = read_all(harness.source, start)
        assert [(u.op, u.table, u.key, u.after) for u in read.updates] == [
            (harness.put, harness.table("a"), (b"k",), harness.after(b"k", b"v")),
            ("delete", harness.table("b"), (b"x",), ()),
            (harness.put, harness.table("b"), (b"",), harness.after(b"", b"")),
        ]

    def test_two_readers_do_not_disturb_each_other(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 10)
        first, second = harness.source.open(start), harness.source.open(start)
        end = harness.source.latest().order
        assert read_until(first, end).updates == read_until(second, end).updates
        first.close()
        second.close()


class TestDuplicates:
    def test_from_every_marker_exactly_the_rest(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        mixed(harness)
        whole = read_all(harness.source, start, 200)
        assert len(whole.markers) > 5
        reader = harness.source.open(start)
        read = Read()
        end = harness.source.latest().order
        while read.last_end is None or read.last_end < end:
            segment = reader.read(200, 1.0)
            assert segment is not None
            read.add(segment)
            if segment.marker is not None:
                rest = read_all(harness.source, segment.marker)
                assert read.ids() + rest.ids() == whole.ids()
        reader.close()

    def test_a_marker_outlives_a_restart(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 10)
        harness.rotate()
        marker = read_all(harness.source, start).markers[-1]
        put(harness, 10, 5)
        whole = read_all(harness.source, start).updates
        harness.restart()
        assert read_all(harness.source, marker).updates == whole[10:]
        assert read_all(harness.source, start).updates == whole


class TestTransactions:
    def test_a_large_one_comes_in_pieces_and_ends_once(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 1)
        harness.commit([("put", "ab"[n % 2], b"%05d" % n, b"x" * 80_000) for n in range(500)])
        put(harness, 1, 1)
        read = read_all(harness.source, start, 1_000_000)
        assert read.pieces >= 20
        assert len(read.updates) == 502
        assert len(read.ended) == 3
        big = [u for u in read.updates if u.id.rpartition(":")[0] == read.ended[1][1]]
        assert [int(u.id.rpartition(":")[2]) for u in big] == list(range(500))
        assert [u.key[0] for u in big] == [b"%05d" % n for n in range(500)]

    def test_a_piece_stays_near_the_size_asked_for(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        harness.commit([("put", "a", b"%05d" % n, b"x" * 80_000) for n in range(500)])
        reader = harness.source.open(start)
        while (segment := reader.read(500_000, 0.0)) is not None:
            assert sum(len(run.blob) for run in segment.runs.values()) < 800_000
        reader.close()


class TestLiveEnd:
    def test_waits_and_then_gives_nothing(self, make: Maker) -> None:
        harness = make()
        reader = harness.source.open(harness.source.latest())
        while (segment := reader.read(1 << 20, 0.05)) is not None:
            assert not segment.updates
        reader.close()

    def test_a_waiting_read_gets_what_is_committed(self, make: Maker) -> None:
        harness = make()
        marker = harness.source.latest()
        reader = harness.source.open(marker)
        writer = threading.Timer(0.1, lambda: put(harness, 0, 1))
        writer.start()
        read = Read()
        while not read.updates:
            if (segment := reader.read(1 << 20, 86_400.0)) is not None:
                read.add(segment)
        writer.join()
        assert read.keys() == [b"0000"]
        reader.close()

    def test_close_ends_a_waiting_read(self, make: Maker) -> None:
        harness = make()
        reader = harness.source.open(harness.source.latest())
        while reader.read(1 << 20, 0.0) is not None:
            pass
        closer = threading.Timer(0.1, reader.close)
        closer.start()
        assert reader.read(1 << 20, 86_400.0) is None
        closer.join()
        reader.close()

    def test_reads_over_new_files_as_they_come(self, make: Maker) -> None:
        harness = make()
        reader = harness.source.open(harness.source.latest())
        read = Read()
        for n in range(5):
            put(harness, n, 1)
            harness.rotate()
            read_until(reader, harness.source.latest().order, into=read)
        assert read.keys() == [b"%04d" % n for n in range(5)]
        reader.close()


class TestPlaces:
    def test_earliest_comes_first_and_latest_last(self, make: Maker) -> None:
        harness = make()
        put(harness, 0, 3)
        assert harness.source.earliest().order <= harness.source.latest().order
        before = harness.source.latest()
        put(harness, 3, 1)
        assert harness.source.latest().order > before.order
        assert read_all(harness.source, before).keys() == [b"0003"]
        assert read_all(harness.source, harness.source.earliest()).keys()[-4:] == [b"%04d" % n for n in range(4)]

    def test_locate(self, make: Maker) -> None:
        harness = make()
        put(harness, 0, 3)
        source = harness.source
        assert source.locate("latest") == source.latest()
        assert source.locate("earliest") == source.earliest()
        marker = source.latest()
        put(harness, 3, 2)
        assert source.locate(str(marker.order)).order == marker.order
        assert source.locate(harness.after_delivered(marker)).order == marker.order
        assert read_all(source, source.locate(harness.after_delivered(marker))).keys() == [b"0003", b"0004"]

    @pytest.mark.parametrize("text", ["", "yesterday", "seq:", "seq:x", "1/2", "seq:99999999", "1/99999999/0", "9/1/0"])
    def test_what_is_no_place_of_the_log_is_refused(self, make: Maker, text: str) -> None:
        harness = make()
        put(harness, 0, 1)
        with pytest.raises((PositionError, Diverged)) as error:
            harness.source.locate(text)
        assert error.value.hint

    def test_status_tells_both_ends(self, make: Maker) -> None:
        harness = make()
        put(harness, 0, 3)
        read_all(harness.source, harness.source.earliest())
        status = harness.source.status()
        assert status.oldest <= harness.source.earliest().order
        assert status.end == harness.source.latest().order
        assert not status.problems
        assert list(status.files) == sorted(status.files)
        number, size = status.files[-1]
        assert (number, size) >= (status.end.file, status.end.offset)
        assert bool(status.budget_bytes) == harness.bounded_by_bytes


class TestLoss:
    def test_a_marker_before_what_is_kept(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 5)
        marker = read_all(harness.source, start, 1).markers[1]
        harness.purge()
        with pytest.raises(PositionPurged) as error:
            harness.source.open(marker)
        assert error.value.hint
        assert error.value.first_missing.startswith(harness.first_missing(marker))
        assert error.value.last_missing
        rest = read_all(harness.source, harness.source.earliest())
        assert rest.keys()[-1] == b"after the purge"

    def test_a_marker_ahead_of_the_log(self, make: Maker) -> None:
        harness = make()
        put(harness, 0, 1)
        latest = harness.source.latest()
        for ahead in (
            replace_place(latest, LogPosition(latest.order.incarnation, latest.order.file, latest.order.offset + 4096)),
            replace_place(latest, LogPosition(latest.order.incarnation, latest.order.file + 1000, 0)),
            replace_place(latest, LogPosition(latest.order.incarnation + 1, latest.order.file, latest.order.offset)),
        ):
            with pytest.raises(Diverged) as error:
                harness.source.open(ahead)
            assert error.value.hint
            assert str(ahead.order) in str(error.value)

    def test_another_anchor_is_another_log(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 3)
        marker = read_all(harness.source, start).markers[-1]
        assert marker.anchor is not None
        harness.source.open(marker).close()
        forged = replace(marker, anchor=replace(marker.anchor, checksum=marker.anchor.checksum ^ 1))
        with pytest.raises(Diverged) as error:
            harness.source.open(forged)
        assert error.value.hint

    def test_a_restored_datastore_is_another_log(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        put(harness, 0, 3)
        harness.save()
        saved = harness.source.latest()
        put(harness, 3, 1)
        marker = read_all(harness.source, start).markers[-1]
        harness.lose_tail(saved)
        with pytest.raises(Diverged) as error:
            harness.source.open(marker)
        assert error.value.hint
        assert read_all(harness.source, harness.source.earliest()).keys()[-1] == b"another history"


def replace_place(marker: Datamarker, order: LogPosition) -> Datamarker:
    return replace(marker, order=order, read_from=order)


class TestRelease:
    def test_what_is_not_released_can_be_read(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        for n in range(6):
            put(harness, n, 1)
            harness.rotate()
        whole = read_all(harness.source, start, 1)
        for marker in whole.markers:
            harness.source.release(marker.read_from)
            rest = read_all(harness.source, marker)
            assert rest.ids() == whole.ids()[len(whole.ids()) - len(rest.ids()) :]
            assert harness.source.status().oldest <= marker.order
        harness.restart()
        assert not read_all(harness.source, whole.markers[-1]).updates

    def test_nothing_is_given_up_before_it_is_released(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        for n in range(4):
            put(harness, n, 1)
            harness.rotate()
        harness.restart()
        assert read_all(harness.source, start).keys() == [b"%04d" % n for n in range(4)]


class TestShards:
    def test_by_table(self, make: Maker) -> None:
        harness = make(Sharding("table"))
        start = harness.source.latest()
        mixed(harness)
        read = read_all(harness.source, start, 300)
        shards = {harness.shard(harness.table(name)) for name in "ab"}
        assert {u.shard for u in read.updates} == shards
        assert all(u.shard == harness.shard(u.table) for u in read.updates)
        assert harness.source.shards() >= shards

    def test_by_hash(self, make: Maker) -> None:
        harness = make(Sharding("hash", 5))
        start = harness.source.latest()
        updates = mixed(harness)
        read = read_all(harness.source, start, 300)
        assert len(read.updates) == updates
        for update in read.updates:
            key = update.key[0]
            assert isinstance(key, bytes)
            assert update.shard == shard_of_hash("log", harness.hash_key(key), 5)
        assert harness.source.shards() == {f"log.{k}of5" for k in range(5)}

    @pytest.mark.parametrize("sharding", [Sharding("log"), Sharding("table"), Sharding("hash", 3)])
    def test_every_shard_is_told_the_end_of_its_transactions(self, make: Maker, sharding: Sharding) -> None:
        harness = make(sharding)
        start = harness.source.latest()
        mixed(harness)
        read = read_all(harness.source, start, 100)
        touched = {(u.shard, u.id.rpartition(":")[0]) for u in read.updates}
        assert set(read.ended) == touched
        assert len(read.ended) == len(touched)


class TestTimes:
    def test_a_replay_gives_the_same_times(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        began_us = time.time_ns() // 1_000_000_000 * 1_000_000  # a server's clock shows whole seconds
        put(harness, 0, 5)
        reader = harness.source.open(start)
        live = read_until(reader, harness.source.latest().order)
        reader.close()
        times = [u.committed_at_us for u in live.updates]
        assert times == sorted(times)
        assert began_us <= times[0] <= times[-1] <= time.time_ns() // 1000
        assert read_all(harness.source, start).updates == live.updates
        harness.rotate()
        harness.restart()
        assert read_all(harness.source, start, 1).updates == live.updates

    def test_a_time_means_the_last_place_by_which_all_was_committed(self, make: Maker) -> None:
        harness = make()
        start = harness.source.latest()
        reader = harness.source.open(start)
        read = Read(last_end=start.order)
        times: list[int] = []
        while not times or times[-1] - times[0] < 5_000_000:
            put(harness, len(times), 1)
            if len(times) == 10:
                harness.rotate()
            read_until(reader, harness.source.latest().order, into=read)
            between = reader.read(1 << 20, 0.1)  # no update: the time between two transactions
            if between is not None:
                read.add(between)
            times = [u.committed_at_us for u in read.updates]
        reader.close()
        for at in (times[0] + 2_000_000, times[0] + 3_300_000):
            rest = read_all(harness.source, harness.source.locate_time(at)).ids()
            begins = len(times) - len(rest)
            assert read.ids()[begins:] == rest
            assert all(time_us <= at for time_us in times[:begins]), "nothing that was committed later is passed over"
            assert times[begins] > at - 2_100_000, "and little that was committed before is repeated"
        assert read_all(harness.source, harness.source.locate_time(times[-1] + 10_000_000)).ids() == []

    def test_a_time_before_the_log_says_where_that_begins(self, make: Maker) -> None:
        harness = make()
        put(harness, 0, 5)
        harness.purge()
        with pytest.raises(PositionPurged, match=r"the log begins at \d+/\d+/\d+.* about 20\d\d-") as caught:
            harness.source.locate_time(1_000_000_000_000_000)
        assert "earliest" in str(caught.value.hint)
