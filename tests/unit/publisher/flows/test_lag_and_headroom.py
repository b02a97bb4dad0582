"""Lag, growth and headroom, from segments and statuses made by hand and by the memory source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastores.memory.source import MemorySource
from publisher.flows.lag_and_headroom import FlowLag, Headroom, LogWatch
from tests.support.present import present
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.log_source import RelayStatus, SlotStatus, SourceStatus


class Log:
    """A memory log whose clock stands, and a watch that sees what is read of it."""

    def __init__(self) -> None:
        self.us = 1_000_000
        self.source = MemorySource(log="log", sharding=Sharding("table"), now_us=lambda: self.us)
        self.start = self.source.latest()
        self.watch = LogWatch()
        self._reader = self.source.open(self.start)

    def commit(self, table: str = "t") -> Datamarker:
        return self.source.commit([(Op.UPSERT, table, b"k", {"value": b"v" * 100})])

    def read(self) -> None:
        while (segment := self._reader.read(1, 0)) is not None:
            self.watch.read(segment)


def at(file: int, offset: int) -> LogPosition:
    return LogPosition(1, file, offset)


def marker(place: LogPosition) -> Datamarker:
    return Datamarker(place, "", place)


def status(*files: tuple[int, int], budget: int = 0) -> SourceStatus:
    return SourceStatus(at(*files[-1]), at(files[0][0], 0), 0, files=files, budget_bytes=budget)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_flow_at_the_end_has_no_lag(log: Log) -> None:
    assert log.watch.lag("log.t", log.start, 9.0) == FlowLag(0.0, None, None)  # nothing is known of the log yet
    end = log.commit()
    log.read()
    assert log.watch.end() == end.order
    assert log.watch.lag("log.t", end, 9.0) == FlowLag(0.0, 0, 0)


def test_before_the_log_is_measured_the_age_of_the_datamarker_is_no_lag(log: Log) -> None:
    acknowledged = log.commit()
    assert log.watch.lag("log.t", acknowledged, 9.0) == FlowLag(0.0, None, None)
    log.watch.failed(Problem("it cannot be asked"))
    assert log.watch.lag("log.t", acknowledged, 9.0) == FlowLag(8.0, None, None), "it may grow unseen"


@pytest.fixture
def watch() -> LogWatch:
    return LogWatch()


def test_the_end_is_unknown_while_the_source_cannot_say_it(watch: LogWatch) -> None:
    assert (watch.problems, watch.end_unknown) == ((), "")
    watch.measured(replace(status((1, 9)), problems=(Problem("full"), Problem("away")), end_unknown="away"), 1.0)
    assert (watch.problems, watch.end_unknown) == ((Problem("full"), Problem("away")), "away")
    watch.failed(Problem("it cannot be asked"))
    assert (watch.problems, watch.end_unknown) == ((Problem("it cannot be asked"),), "it cannot be asked")
    watch.measured(status((1, 9)), 2.0)
    assert (watch.problems, watch.end_unknown) == ((), "")


def test_lag_is_the_age_of_the_first_unacknowledged_and_counts_its_own_shard(log: Log) -> None:
    first = log.commit()
    log.us = 5_000_000
    for table in "ttot":
        end = log.commit(table)
    log.read()
    assert log.watch.lag("log.t", first, 9.0) == FlowLag(4.0, end.order.offset - first.order.offset, 3)
    assert log.watch.lag("log.o", first, 9.0).transactions == 1
    assert log.watch.lag("log.t", log.start, 9.0).seconds == 8.0


def test_a_log_that_grows_by_nothing_of_the_shard_makes_no_lag(log: Log) -> None:
    """PostgreSQL's does so by itself every few seconds: an idle flow was shown as far behind as its last update is
    old."""
    first = log.commit()
    log.us = 50_000_000
    end = log.commit("o")
    log.read()
    assert log.watch.lag("log.t", first, 51.0) == FlowLag(0.0, end.order.offset - first.order.offset, 0)
    assert log.watch.lag("log.o", first, 51.0).seconds == 1.0


def test_what_was_not_read_is_not_counted(log: Log) -> None:
    first, second = log.commit(), log.commit()
    fresh = LogWatch()
    reader = log.source.open(first)
    segment = present(reader.read(1, 0))
    fresh.read(segment)
    assert fresh.lag("log.t", first, 9.0).transactions == 1
    assert fresh.lag("log.t", log.start, 9.0) == FlowLag(0.0, second.order.offset, None)
    fresh.measured(replace(log.source.status(), end=at(1, 10_000)), 1.0)
    assert fresh.lag("log.t", first, 9.0).transactions is None


def test_a_stretch_that_was_read_already_is_counted_once_and_a_jump_starts_anew(log: Log) -> None:
    for _ in range(4):
        log.commit()
    reader = log.source.open(log.start)
    segments = [segment for _ in range(4) if (segment := reader.read(1, 0)) is not None]
    for index in (0, 1, 0, 1):
        log.watch.read(segments[index])
    assert log.watch.lag("log.t", log.start, 9.0).transactions == 2
    log.watch.read(segments[3])
    assert log.watch.lag("log.t", log.start, 9.0).transactions is None
    assert log.watch.lag("log.t", marker(segments[3].begin), 9.0).transactions == 1


def test_far_back_it_counts_about_and_near_the_end_exactly(log: Log) -> None:
    markers = [log.start, *(log.commit() for _ in range(3000))]
    log.read()
    for behind in (1, 2, 50, 200):
        assert log.watch.lag("log.t", markers[-1 - behind], 9.0).transactions == behind
    assert log.watch.lag("log.t", log.start, 9.0).transactions == 3000
    far = present(log.watch.lag("log.t", markers[1000], 9.0).transactions)
    assert abs(far - 2000) <= 20


def test_thousands_of_shards_stay_bounded(log: Log) -> None:
    changes = [(Op.UPSERT, f"t{i}", b"k", {"value": b"v"}) for i in range(2000)]
    for _ in range(3):
        log.source.commit(changes)
    reader = log.source.open(log.start)
    while (segment := reader.read(1 << 30, 0)) is not None:
        log.watch.read(segment)
    assert log.watch.lag("log.t7", log.start, 9.0).transactions == 3


def test_growth_needs_a_while_and_follows_the_files(watch: LogWatch) -> None:
    assert watch.growth() is None
    watch.measured(status((1, 100)), 0.0)
    watch.measured(status((1, 200)), 1.0)
    assert watch.growth() is None
    watch.measured(status((1, 300), (2, 100)), 4.0)
    assert watch.growth() == 75.0
    watch.measured(status((2, 500)), 10.0)  # the first file was given up: its distance is not known any more
    assert watch.growth() == 400 / 6
    watch.measured(status((3, 700)), 15.0)
    assert watch.growth() is None


def test_headroom_is_what_the_budget_leaves_at_this_growth(watch: LogWatch) -> None:
    assert watch.headroom(marker(at(1, 50))) == Headroom(None, "the log was not measured yet")
    watch.measured(status((1, 100), (2, 100), budget=1000), 0.0)
    assert watch.headroom(marker(at(1, 50))) == Headroom(None, "the growth of the log is not known yet")
    watch.measured(status((1, 100), (2, 400), budget=1000), 3.0)
    assert watch.headroom(marker(at(1, 50))) == Headroom(5.0)
    assert watch.headroom(marker(at(2, 399))) == Headroom(6.0)
    assert watch.headroom(marker(at(7, 0))).unknown == "the datamarker is in a file that the log no longer has"
    watch.measured(status((1, 100), (2, 400)), 6.0)
    assert watch.headroom(marker(at(1, 50))).unknown == "the datastore itself decides how long it keeps its log"
    slot = SlotStatus("held", 300, None, lost=False, unsynced=None, catalog_age=0)
    watch.measured(replace(status((1, 100), (2, 400)), slots=(slot,)), 6.0)
    unbounded = "the datastore keeps its log for the publisher's slots, without a limit"
    assert watch.headroom(marker(at(1, 50))).unknown == unbounded
    watch.measured(status((1, 100), (2, 5000), budget=1000), 9.0)
    assert watch.headroom(marker(at(1, 50))) == Headroom(0.0)


SLOT = SlotStatus("held", 300, None, lost=False, unsynced=None, catalog_age=0)


def relay(mode: str = "hold", *stretches: tuple[int, int], tip: int = 400, keeps_slot: bool = False) -> RelayStatus:
    """The relay of a log of one file; its records take half as much as the log."""
    found = tuple((at(0, begin), at(0, end)) for begin, end in stretches or ((100, tip),))
    begin, end = marker(found[0][0]), marker(found[-1][1])
    return RelayStatus(mode, begin, end, end.order, found, None, 150, 300, 1000, 200, keeps_slot, 0)


def relayed(relay: RelayStatus, *, budget: int = 0, slots: bool = True) -> LogWatch:
    """A log that grows by 100 bytes a second, up to 400."""
    watch = LogWatch()
    for now, size in ((0.0, 100), (3.0, 400)):
        measured = status((0, size), budget=budget)
        watch.measured(replace(measured, relay=relay, slots=(SLOT,) if slots else ()), now)
    return watch


def test_a_bounded_slot_counts_from_the_datamarker() -> None:
    watch = relayed(replace(relay(), tip=None, stretches=()), budget=350)
    assert watch.headroom(marker(at(0, 300))) == Headroom(2.5)


def test_headroom_with_a_relay_is_what_relay_and_log_hold_together() -> None:
    held = relayed(relay())
    # 1000 bytes of budget are 2000 of log, of which 300 follow the first marker.
    assert held.headroom(marker(at(0, 100))) == Headroom(17.0)
    assert held.headroom(marker(at(0, 400))) == Headroom(20.0)
    assert "for the publisher's slots, without a limit" in held.headroom(marker(at(0, 99))).unknown
    keeps = relayed(relay(keeps_slot=True))
    assert keeps.headroom(marker(at(0, 100))).unknown.startswith(
        "the relay holds it for about 0 minutes as the log grows"
    )
    assert relayed(relay(keeps_slot=True), budget=500).headroom(marker(at(0, 100))) == Headroom(22.0)


def test_headroom_with_a_cache() -> None:
    server = relayed(relay("cache"), slots=False)
    assert server.headroom(marker(at(0, 100))).unknown.endswith(
        "the datastore itself decides how long it keeps its log"
    )
    files = relayed(relay("cache"), budget=3000, slots=False)
    assert files.headroom(marker(at(0, 100))) == Headroom(26.0), "the log alone holds it longer"
    assert relayed(relay("cache"), budget=500, slots=False).headroom(marker(at(0, 100))) == Headroom(17.0)


def test_what_follows_a_hole_only_the_log_holds() -> None:
    watch = relayed(relay("hold", (0, 100), (200, 400)), budget=500)
    assert watch.headroom(marker(at(0, 50))) == Headroom(1.0), "from 100 on the log, of which two slot budgets stay"
    held = relayed(replace(relay("hold", (0, 100), (200, 400)), keeps_slot=True), budget=500)
    assert held.headroom(marker(at(0, 50))) == Headroom(2.0)
    unbounded = relayed(replace(relay(), problem=Problem("its disk fails")))
    assert unbounded.headroom(marker(at(0, 100))) == Headroom(4.0), "no limit of the server's"
    assert watch.headroom(marker(at(0, 200))) == Headroom(18.0)
    full = relayed(replace(relay(keeps_slot=True), problem=Problem("the relay is full")), budget=500)
    assert full.headroom(marker(at(0, 100))) == Headroom(5.0), "nothing of it goes, and the slot keeps what comes"


def test_headroom_with_a_relay_that_cannot_be_known(watch: LogWatch) -> None:
    watch.measured(replace(status((0, 400)), relay=relay(), slots=(SLOT,)), 0.0)
    assert watch.headroom(marker(at(0, 100))).unknown == "the growth of the log is not known yet"
    other = replace(relay(), stretches=((LogPosition(0, 0, 5), at(0, 400)),))
    assert (
        relayed(other).headroom(marker(LogPosition(0, 0, 9))).unknown
        == "how much of the log follows the datamarker is not known"
    )
    gone = relayed(replace(relay("cache"), log_bytes=0, bytes=0), budget=500, slots=False)
    assert gone.headroom(marker(at(0, 100))) == Headroom(7.0)


def test_who_reads_the_relay() -> None:
    watch = relayed(relay("cache", (0, 100), (200, 400)))
    places = (0, 99, 100, 199, 200, 399, 400)
    assert [place for place in places if watch.reads_relay(at(0, place))] == [0, 99, 200, 399]
    assert not LogWatch().reads_relay(at(0, 0))
    assert LogWatch().relay is None


def test_a_log_that_does_not_grow_has_no_end_of_headroom(watch: LogWatch) -> None:
    for second in range(5):
        watch.measured(status((1, 100), budget=1000), float(second))
    assert watch.growth() == 0.0
    assert watch.headroom(marker(at(1, 50))) == Headroom(None, "the log does not grow")


def test_what_is_written_after_a_place_counts_whole_files(watch: LogWatch) -> None:
    assert watch.behind(at(1, 0)) is None
    watch.measured(status((1, 100), (2, 30)), 0.0)
    assert watch.behind(at(1, 90)) == 40
    assert watch.behind(at(2, 30)) == 0
    assert watch.behind(at(3, 0)) == 0
    assert watch.behind(None) is None
    assert watch.behind(LogPosition(0, 1, 0)) is None


def test_what_is_read_for_the_first_time_is_counted_once(log: Log) -> None:
    log.commit()
    log.commit("u")
    log.read()
    again = log.source.open(log.start)
    while (segment := again.read(1, 0)) is not None:
        log.watch.read(segment)
    assert (log.watch.transactions, log.watch.updates) == (2, 2)


def test_a_marker_without_a_commit_time_is_as_old_as_the_log_around_it(log: Log) -> None:
    inside = log.commit()
    log.us = 5_000_000
    log.commit()
    log.read()
    assert log.watch.lag("log.t", replace(log.start, committed_at_us=0), 9.0).seconds == 8.0
    joined = LogWatch()
    reader = log.source.open(log.start)
    while (segment := reader.read(1 << 20, 0)) is not None:  # both in one piece
        joined.read(segment)
    assert joined.lag("log.t", replace(inside, committed_at_us=0), 9.0).seconds == 8.0
