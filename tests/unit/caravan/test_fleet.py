"""Caravans over the memory source: who waits for whom, what a broken log does, and what a stop leaves behind."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn

import pytest

from caravan import caravan as caravan_module
from caravan import fleet as fleet_module
from caravan.caravan import Caravan
from caravan.fleet import CaravanEventKind, Fleet, FleetEvents, Limits
from caravan.flow import CaravanFlow, CaravanFlowState
from datastores.memory.source import MemorySource
from tests.support.eventually import PATIENCE_S, patience
from tests.support.present import present
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    PositionError,
    PositionPurged,
    SourceUnavailable,
    WormholeError,
)
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader
from wormhole.wire.body import parse_body

SHARD = "log"
VALUE = b"v" * 1000


class Source(MemorySource):
    """The memory source; a test may hold up its ``open`` and break what its readers read."""

    def __init__(self) -> None:
        super().__init__(log=SHARD, sharding=Sharding("log"))
        self.openings = 0
        self.takes_s = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.reading = threading.Event()
        self.reading.set()
        self.broken: Exception | None = None
        self.broken_when_closed: Exception | None = None
        self.reads: list[tuple[float, int, int]] = []
        """When each read ended, its bytes of log, and the number of the reader."""

    def open(self, marker: Datamarker) -> LogReader:  # type: ignore[override]
        self.openings += 1
        self.gate.wait(PATIENCE_S)
        time.sleep(self.takes_s)
        return _Reader(super().open(marker), self, self.openings)

    def write(self, count: int, value: bytes = VALUE) -> Datamarker:
        """Commit ``count`` transactions of one update each."""
        for _ in range(count):
            marker = self.commit([(Op.UPSERT, "t", b"k", {"value": value})])
        return marker


class Successor(Source):
    """A server that took over from another one: it knows that one's places by what was delivered up to there."""

    def __init__(self) -> None:
        super().__init__()
        self.finds = True

    def open(self, marker: Datamarker) -> LogReader:  # type: ignore[override]
        former = marker.order.incarnation == 0
        return super().open(super().locate(f"seq:{marker.delivered}") if former else marker)

    def locate(self, text: str) -> Datamarker:
        if not self.finds:
            raise PositionError(f"{text} is no place")
        return super().locate(f"seq:{text}")


def of_the_former_server(marker: Datamarker) -> Datamarker:
    order = LogPosition(0, 7, 100 * int(marker.delivered))
    return Datamarker(order, marker.delivered, order)


class _Reader:
    def __init__(self, reader: LogReader, source: Source, number: int) -> None:
        self._reader, self._source, self._number = reader, source, number
        self._closed = False

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        if self._source.broken is not None:
            raise self._source.broken
        self._source.reading.wait(PATIENCE_S)
        segment = self._reader.read(max_bytes, wait_s)
        if self._closed and self._source.broken_when_closed is not None:
            raise self._source.broken_when_closed
        if segment is not None:
            self._source.reads.append((time.monotonic(), segment.log_bytes, self._number))
        return segment

    def close(self) -> None:
        self._closed = True
        self._reader.close()


class Rider:
    """A flow and whoever takes from it: everything at once, or nothing while ``paused``."""

    def __init__(self, fleet: Fleet, name: str, marker: Datamarker) -> None:
        self.fleet = fleet
        self.paused = False
        self.ids: list[str] = []
        self.flow = CaravanFlow(name, SHARD, Filter.parse(None), marker, 1, self._woken)
        fleet.add(self.flow)

    def _woken(self) -> None:
        asyncio.get_running_loop().call_soon(self.take)

    def take(self) -> None:
        if self.paused:
            return
        if self.flow.blocked:
            self.fleet.moved(self.flow)
        while self.flow.state is CaravanFlowState.TRAVELLING and (piece := self.flow.peek()) is not None:
            assert piece.gap is None
            if piece.body is not None:
                body = parse_body(piece.body.data)
                self.ids += [body.transaction_id(body.transaction_of(i)) for i in range(len(body.updates))]
            self.flow.take()
            self.fleet.moved(self.flow)

    def go_on(self) -> None:
        self.paused = False
        self.take()


WALL = 1_700_000_000.5


class Yard:
    """A running fleet and what it told."""

    def __init__(self, limits: Limits, source: Source | None = None) -> None:
        self.source = source or Source()
        self.start = self.source.latest()
        self.begin: Datamarker | None = None
        """Where the lead begins, if not at the start."""
        self.held: list[tuple[CaravanFlow, WormholeError]] = []
        events = FleetEvents(lambda f, e: self.held.append((f, e)), lambda s, m: None)
        self.fleet = Fleet(self.source, limits, events, lambda: 0.0, clock=Clock(wall=lambda: WALL))

    def rider(self, name: str, marker: Datamarker | None = None) -> Rider:
        return Rider(self.fleet, name, marker or self.start)

    async def travels(self, name: str) -> Rider:
        """A rider, once a caravan carries it."""
        rider = self.rider(name)
        await travelling(rider)
        return rider


async def travelling(*riders: Rider) -> None:
    await until(lambda: all(rider.flow.state is CaravanFlowState.TRAVELLING for rider in riders))


@asynccontextmanager
async def running(yard: Yard) -> AsyncIterator[Yard]:
    task = asyncio.create_task(yard.fleet.run(yard.begin or yard.start))
    try:
        yield yard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], object]) -> None:
    async with patience():
        while not true():  # noqa: ASYNC110 - the fleet's inner state has no event
            await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_TICK_S", 0.01)
    monkeypatch.setattr(fleet_module, "_SETTLED_S", 0.05)
    monkeypatch.setattr(fleet_module, "_REOPEN_S", 0.02)


def small(caravans: int = 4) -> Limits:
    """Buffers of a few segments, each of a few updates."""
    return Limits(caravans=caravans, buffer_bytes=40_000, read_bytes=4_000)


def expected(count: int) -> list[str]:
    return [f"mem:{number}" for number in range(1, count + 1)]


@pytest.fixture
def yard() -> Yard:
    return Yard(Limits())


async def test_flows_at_the_place_of_a_new_caravan_do_not_ask_whether_the_log_is_theirs(yard: Yard) -> None:
    """However far it has read when they board: it was opened there."""
    riders = [yard.rider(name) for name in "abc"]
    yard.source.write(50)
    async with running(yard):
        await until(lambda: all(rider.ids == expected(50) for rider in riders))
        assert yard.source.openings == 1


async def test_flows_at_the_place_of_a_new_caravan_travel_with_it_however_little_it_buffers() -> None:
    """It reads on at once: a plan later their place may have left its buffer, and each would start one of its own."""
    yard = Yard(small())
    yard.begin = yard.source.write(400)
    async with running(yard):
        await until(lambda: yard.fleet.lead)
        riders = [yard.rider(name) for name in "abcdef"]
        await until(lambda: all(rider.ids == expected(400) for rider in riders))
        assert yard.fleet.started == 2


async def test_a_caravan_starts_before_many_flows_that_join_others_are_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Opening the log takes a moment for each of them: a flow that is behind does not wait until all are through."""
    monkeypatch.setattr(fleet_module, "_QUIET_S", 0.01)
    yard = Yard(Limits(buffer_bytes=4 << 20))
    behind = yard.source.write(2000)
    yard.begin = yard.source.write(3000)
    places = [yard.source.write(1) for _ in range(40)]
    async with running(yard):
        await until(lambda: (lead := yard.fleet.lead) is not None and lead.buffer.place == places[-1].order)
        yard.source.takes_s = 0.02
        near = [yard.rider(f"near-{number}", place) for number, place in enumerate(places)]
        far = yard.rider("far", behind)
        await until(lambda: all(one.flow.state is CaravanFlowState.TRAVELLING for one in (far, *near)))
    joined = [event.what.split(" ")[0] for event in yard.fleet.history if event.kind is CaravanEventKind.JOINED]
    assert joined.index("far/log") < len(near) // 2


async def test_a_slow_flow_is_left_behind_and_misses_nothing() -> None:
    async with running(Yard(small())) as yard:
        quick_one, slow = yard.rider("quick"), yard.rider("slow")
        await travelling(slow)
        slow.paused = True
        yard.source.write(200)
        await until(lambda: quick_one.ids == expected(200))
        assert slow.flow.state is CaravanFlowState.WAITING
        assert slow.flow.blocked
        assert "left behind" in slow.flow.cause
        slow.go_on()
        await until(lambda: slow.ids == expected(200))
        # It caught up, moved to the lead, and the caravan that brought it there is gone.
        await until(lambda: len(yard.fleet.caravans) == 1 and slow.flow.state is CaravanFlowState.TRAVELLING)


async def test_with_one_caravan_it_waits_for_its_slowest_flow() -> None:
    async with running(Yard(small(caravans=1))) as yard:
        quick_one, slow = yard.rider("quick"), yard.rider("slow")
        await travelling(slow)
        slow.paused = True
        yard.source.write(200)
        lead = present(yard.fleet.lead)
        await until(lambda: lead.buffer.size > yard.fleet.budget(lead) and quick_one.flow.cursor == lead.buffer.end)
        assert slow.flow.state is CaravanFlowState.TRAVELLING
        await until(lambda: lead.waits)
        slow.go_on()
        await until(lambda: slow.ids == quick_one.ids == expected(200))
        await until(lambda: not lead.waits)
        assert yard.fleet.most == 1


@pytest.mark.parametrize("caravans", [1, 2])
async def test_after_a_change_of_servers_each_flow_gets_what_it_lacks_and_no_more(caravans: int) -> None:
    """Where they are in the log of the former server does not tell what they have of the present one's."""
    yard = Yard(Limits(caravans=caravans), Successor())
    markers = [yard.source.write(10) for _ in range(3)]
    yard.source.write(10)
    yard.begin = yard.source.latest()
    yard.source.reading.clear()
    async with running(yard):
        riders = [yard.rider(f"r{marker.delivered}", of_the_former_server(marker)) for marker in markers]
        await travelling(*riders)
        yard.source.reading.set()
        await until(lambda: all(rider.ids[-1:] == ["mem:40"] for rider in riders))
        assert [rider.ids for rider in riders] == [expected(40)[10 * number :] for number in (1, 2, 3)]


async def test_a_place_that_is_not_found_in_the_log_of_another_server_is_read_from_all_the_same() -> None:
    source = Successor()
    source.finds = False
    yard = Yard(Limits(), source)
    marker = source.write(10)
    source.write(10)
    yard.begin = source.latest()
    async with running(yard):
        rider = yard.rider("app", of_the_former_server(marker))
        await until(lambda: rider.ids == expected(20)[10:])


async def test_with_one_caravan_flows_far_apart_are_served_in_turns() -> None:
    """Each send-back waits until those who ride were served: none starves while another comes again and again."""
    async with running(Yard(small(caravans=1))) as yard:
        first = yard.rider("first")
        middle = yard.source.write(100)
        yard.source.write(100)
        await until(lambda: first.ids == expected(200))
        riders = [yard.rider("late", yard.start), yard.rider("later", middle)]
        await until(lambda: riders[0].ids == expected(200) and riders[1].ids == expected(200)[100:])
        assert yard.fleet.most == 1


async def test_who_is_live_finds_the_lead_at_the_end_however_many_catch_up() -> None:
    yard = Yard(Limits(caravans=2, read_rate=100_000, read_bytes=4_000))
    markers = [yard.source.write(1000) for _ in range(4)]
    yard.begin = markers[-1]
    late = [yard.rider(str(i), marker) for i, marker in enumerate([yard.start, *markers[:-1]])]
    async with running(yard):
        await travelling(*late)
        live = yard.rider("live", yard.begin)
        await travelling(live)
        yard.source.write(1)
        await until(lambda: live.ids)
        assert yard.fleet.caravan_of(live.flow) is yard.fleet.lead


async def test_caravans_that_meet_merge_and_say_why() -> None:
    yard = Yard(Limits(buffer_bytes=4 << 20, read_bytes=64 << 10))
    middle = yard.source.write(1000)
    yard.begin = yard.source.write(2000)
    yard.source.reading.clear()  # until all three caravans are there
    async with running(yard):
        places = (("end", yard.begin), ("mid", middle), ("old", yard.start))
        riders = [yard.rider(name, marker) for name, marker in places]
        await until(lambda: len(yard.fleet.caravans) == 3)
        yard.source.reading.set()
        await until(lambda: riders[2].ids == expected(3000) and riders[1].ids == expected(3000)[1000:])
        await until(lambda: len(yard.fleet.caravans) == 1)
        assert yard.fleet.most == yard.fleet.started == 3
        # What the two that ended had read stays counted.
        (lead,) = yard.fleet.caravans.values()
        assert yard.fleet.read_bytes_total > lead.read_bytes
        told = [event.what for event in yard.fleet.history]
        assert any("mid/log joins: caught up with the lead" in what for what in told)
        assert sum("merged into caravan" in what for what in told) == 2
        assert all(event.at == WALL and event.caravan in (1, 2, 3) for event in yard.fleet.history)
        kinds = Counter(event.kind for event in yard.fleet.history)
        assert (kinds[CaravanEventKind.STARTED], kinds[CaravanEventKind.ENDED]) == (3, 2)
        assert {event.kind for event in yard.fleet.history if "joins: " in event.what} == {CaravanEventKind.JOINED}


async def test_a_caravan_takes_what_no_other_uses_and_gives_it_back() -> None:
    yard = Yard(Limits(caravans=2, buffer_bytes=400_000, read_bytes=4_000))
    async with running(yard):
        quick_one = await yard.travels("quick")
        yard.source.write(500)
        await until(lambda: quick_one.ids == expected(500))
        lead = present(yard.fleet.lead)
        assert lead.buffer.size > 300_000  # alone it has the whole budget
        slow = yard.rider("slow", yard.start)
        slow.paused = True
        await until(lambda: slow.flow.state is CaravanFlowState.TRAVELLING and slow.flow.peek() is not None)
        await until(lambda: yard.fleet.governor.used() >= 390_000 and lead.buffer.size < 300_000)
        await asyncio.sleep(0.05)  # nothing tells that it does not grow
        assert yard.fleet.governor.used() < 400_000 + 3 * yard.fleet.read_bytes
        slow.go_on()
        await until(lambda: slow.ids == expected(500))


async def test_over_the_one_budget_the_furthest_behind_is_evicted_to_its_own_place() -> None:
    yard = Yard(Limits(caravans=3, buffer_bytes=200_000, read_bytes=4_000))
    yard.begin = yard.source.write(300)
    async with running(yard):
        lead = yard.rider("lead", yard.begin)
        await travelling(lead)
        slow = yard.rider("slow", yard.start)
        slow.paused = True
        await until(lambda: (c := yard.fleet.caravan_of(slow.flow)) is not None and c.buffer.size > 150_000)
        lead.paused = True  # what comes next stays in the lead's buffer, and it is sure of its half
        yard.source.write(300)
        await until(lambda: slow.flow.blocked)
        assert "evicted: furthest behind" in slow.flow.cause
        assert yard.fleet.governor.used() < 200_000 + 3 * yard.fleet.read_bytes
        lead.go_on()
        slow.go_on()
        await until(lambda: slow.ids == expected(600))
        assert lead.ids == expected(600)[300:]


async def test_no_second_exceeds_the_caps_and_the_lead_is_not_held_up() -> None:
    """What no second exceeds is in test_rate.py; here the readers of a fleet share the caps."""
    one, total = 100_000, 200_000
    yard = Yard(Limits(caravans=4, read_rate=one, total_read_rate=total))
    markers = [yard.source.write(1200) for _ in range(3)]  # the others have to read 7 MB: half a minute
    yard.begin = markers[-1]
    began = time.monotonic()
    async with running(yard):
        live = yard.rider("live", yard.begin)
        others = [yard.rider(str(i), marker) for i, marker in enumerate([yard.start, *markers[:2]])]
        await until(lambda: len(yard.fleet.caravans) == 4)
        for number in range(1, 51):
            yard.source.write(1)
            await until(lambda number=number: len(live.ids) == number)  # type: ignore[misc]
        assert all(live.ids[-1] not in rider.ids for rider in others), "the lead came no sooner than who is behind"
        await until(lambda: sum(size for _, size, _ in yard.source.reads) > 1.5 * total)
    for counted in {None, *(reader for _, _, reader in yard.source.reads)}:
        size, cap = 0, total if counted is None else one
        for at, bytes_, reader in yard.source.reads:
            if counted in (None, reader):
                size += bytes_
                assert size <= cap * (at - began + 1.0)


async def test_new_caps_hold_for_caravans_that_read_already() -> None:
    yard = Yard(Limits(caravans=4, buffer_bytes=400_000, read_bytes=4_000, read_rate=100_000))
    markers = [yard.source.write(1200) for _ in range(3)]
    yard.begin = markers[-1]
    async with running(yard):
        riders = [yard.rider(str(i), marker) for i, marker in enumerate([yard.start, *markers])]
        await until(lambda: len(yard.fleet.caravans) == 4)
        places = [rider.flow.place for rider in riders]
        yard.fleet.change_limits(Limits(caravans=2, buffer_bytes=400_000, read_bytes=4_000), "fewer, faster")
        await until(lambda: len(yard.fleet.caravans) <= 2)
        assert all(rider.flow.place >= place for rider, place in zip(riders, places, strict=True)), "nobody went back"
        await until(lambda: all(rider.ids[-1:] == expected(3600)[-1:] for rider in riders[:3]))
        assert yard.fleet.most == 4
        assert [rider.ids for rider in riders[:3]] == [expected(3600)[1200 * number :] for number in range(3)]
        told = [event.what for event in yard.fleet.history]
        assert "fewer, faster" in told
        assert sum("no more than 2 may read" in what for what in told) == 2


async def test_while_a_log_stays_away_it_is_said_once_and_the_flow_tells_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = SourceUnavailable("the server refuses the password", hint="write the right one into the file")
    opened: list[Datamarker] = []

    def open_refused(marker: Datamarker) -> NoReturn:
        opened.append(marker)
        raise refused

    async with running(Yard(Limits())) as yard:
        rider = yard.rider("a")
        yard.source.write(1)
        await until(lambda: rider.ids == expected(1))
        with monkeypatch.context() as away:
            away.setattr(yard.source, "open", open_refused)
            yard.source.broken = SourceUnavailable("the server closed the stream")
            yard.source.write(1)
            await until(lambda: len(opened) >= 3)
            assert (rider.flow.problem, str(refused) in yard.fleet.trouble) == (refused.problem, True)
            yard.source.broken = None
        await until(lambda: rider.ids == expected(2))
        await until(lambda: not yard.fleet.trouble)
        assert not yard.held
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        "caravan 1 lost its log and is opened again: the server closed the stream [source-unavailable]",
        f"the lead cannot be opened: {refused}",
    ]


async def test_a_lead_that_nobody_needs_rests_longer_and_longer_at_log_that_cannot_be_decoded() -> None:
    async with running(Yard(Limits())) as yard:
        rider = await yard.travels("a")
        yard.source.broken = DecodeError("record 7: bad length")
        first = yard.source.openings
        await until(lambda: yard.source.openings > first + 2)
        assert yard.held == [(rider.flow, yard.source.broken)]
        assert (rider.flow.state, rider.flow.cause) == (CaravanFlowState.HELD, "record 7: bad length")
        assert yard.fleet._lead_rest_s >= 4 * 0.02
        yard.source.broken = None
        yard.source.write(1)
        yard.fleet.resume(rider.flow)
        await until(lambda: rider.ids == expected(1))
        assert not yard.fleet._lead_rest_s


async def test_a_flow_does_not_wait_for_a_lead_that_rests(yard: Yard) -> None:
    yard.fleet._start_marker, yard.fleet._lead_not_before = yard.start, math.inf
    openings = []
    for name in ("", "a"):
        if name:
            yard.rider(name)
        await yard.fleet._carry_out()
        openings.append(yard.source.openings)
    assert openings == [0, 1]
    for number in tuple(yard.fleet.caravans):
        yard.fleet._close(number, "the test ends")
    await asyncio.gather(*yard.fleet._tasks.values(), return_exceptions=True)


@pytest.mark.allow_error_log("the fleet logs what it does not know")
async def test_an_error_of_our_own_is_logged_and_the_log_is_opened_again() -> None:
    async with running(Yard(Limits())) as yard:
        rider = await yard.travels("a")
        yard.source.broken = ZeroDivisionError("a bug")
        await until(lambda: rider.flow.state is CaravanFlowState.WAITING)
        yard.source.broken = None
        yard.source.write(1)
        await until(lambda: rider.ids == expected(1))


async def test_a_log_that_breaks_while_its_caravan_is_closed_leaves_no_unretrieved_exception() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with running(Yard(Limits())) as yard:
        rider = await yard.travels("a")
        yard.source.broken_when_closed = SourceUnavailable("the server closed the stream")
        (closed,) = yard.fleet._tasks
        yard.fleet._close(closed, "the plan has no use for it")
        await until(lambda: closed not in yard.fleet._tasks)
        yard.source.broken_when_closed = None
        yard.source.write(1)
        await until(lambda: rider.ids == expected(1))
    gc.collect()
    await asyncio.sleep(0)
    assert not reported


async def test_a_purged_place_holds_only_that_flow(yard: Yard) -> None:
    yard.source.write(3)
    yard.source.purge()
    async with running(yard):
        old, fresh = yard.rider("old"), yard.rider("fresh", yard.source.latest())
        await until(lambda: yard.held)
        flow, error = yard.held[0]
        assert flow is old.flow
        assert isinstance(error, PositionPurged)
        assert (error.first_missing, error.last_missing) == ("1", "3")
        yard.source.write(1)
        await until(lambda: fresh.ids == ["mem:4"])
        old.flow.pass_gap(yard.source.earliest())
        yard.fleet.resume(old.flow)
        await until(lambda: old.ids == ["mem:4"])


@pytest.mark.parametrize("reused", [False, True], ids=["ahead of the log", "a buffer holds its place"])
async def test_a_flow_of_another_history_is_held_rather_than_waited_for(reused: bool, yard: Yard) -> None:
    """The log was restored: what is written anew at the old places would be skipped in silence."""
    lost = yard.source.write(1, b"before" * 20)
    yard.source.restore(yard.start)
    async with running(yard):
        end = yard.source.write(1, b"after!" * 20) if reused else yard.start
        assert (end.order == lost.order) is reused
        await until(lambda: (lead := yard.fleet.lead) is not None and lead.buffer.place == end.order)
        rider = yard.rider("a", lost)
        await until(lambda: yard.held)
        assert isinstance(yard.held[0][1], Diverged)
        assert rider.flow.state is CaravanFlowState.HELD


async def test_flows_removed_while_the_log_is_opened_do_not_board() -> None:
    yard = Yard(small())
    markers = [yard.start, yard.source.write(3000, b"v" * 2000)]
    yard.source.gate.clear()
    riders = [yard.rider(str(i), marker) for i, marker in enumerate(markers)]
    async with running(yard):
        await until(lambda: yard.source.openings)
        for rider in riders:
            yard.fleet.remove(rider.flow)
        yard.source.gate.set()
        await until(lambda: yard.fleet.lead is not None)
        await asyncio.sleep(0.05)
        assert all(rider.flow.state is CaravanFlowState.CLOSED for rider in riders)
        assert not any(caravan.flows for caravan in yard.fleet.caravans.values())


async def test_a_new_flow_of_the_same_name_replaces_the_former() -> None:
    async with running(Yard(Limits())) as yard:
        former = await yard.travels("a")
        present = await yard.travels("a")
        yard.fleet.remove(former.flow)  # late news
        assert former.flow.state is CaravanFlowState.CLOSED
        yard.source.write(1)
        await until(lambda: present.ids == expected(1))
        assert former.ids == []


async def test_a_held_flow_stays_where_it_is_until_it_is_resumed() -> None:
    async with running(Yard(Limits())) as yard:
        rider = yard.rider("a")
        yard.source.write(1)
        await until(lambda: rider.ids == expected(1))
        yard.fleet.hold(rider.flow, "somebody decides")
        yard.source.write(1)
        await asyncio.sleep(0.05)
        assert rider.ids == expected(1)
        yard.fleet.resume(rider.flow)
        await until(lambda: rider.ids == expected(2))


@pytest.mark.parametrize("rate", [0.0, 1.0])
async def test_a_stop_ends_a_waiting_read_and_a_capped_one_and_leaves_no_thread(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caravan_module, "_WAIT_S", 30.0)
    monkeypatch.setattr(caravan_module, "_LONGEST_PAUSE_S", 30.0)
    yard = Yard(Limits(read_rate=rate))
    yard.source.write(5)
    async with running(yard):
        rider = yard.rider("a")
        await until(lambda: rider.ids)  # with the cap, the next read is hours away
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("caravan-")]
    await until(lambda: not [t for t in threading.enumerate() if t.name in threads])
    assert not yard.fleet.caravans
    assert rider.flow.state is CaravanFlowState.WAITING


def test_a_reader_that_catches_up_asks_for_a_plan_where_it_meets_another_buffer(yard: Yard) -> None:
    behind = yard.start
    yard.source.write(30)
    reader = MemorySource.open(yard.source, yard.start)
    segments = [segment for _ in range(30) if (segment := reader.read(1, 0)) is not None]
    assert len(segments) == 30
    asked: list[bool] = []
    fleet = yard.fleet
    lead, follower = (Caravan(n, behind, reader, fleet, 0.0, "a test") for n in (1, 2))
    fleet.caravans.update({1: lead, 2: follower})
    for segment in segments:
        lead.buffer.append(segment)
    for _ in range(20):
        lead.buffer.drop_oldest()
    for segment in segments[:25]:
        follower.buffer.append(segment)
        fleet._changed.clear()
        fleet.advanced(follower, segment)
        asked.append(fleet._changed.is_set())
    assert asked == [False] * 19 + [True] * 6
    fleet._changed.clear()
    fleet.advanced(lead, segments[-1])
    assert not fleet._changed.is_set()
    for caravan in (lead, follower):
        caravan.close()


async def test_while_every_flow_is_live_a_plan_looks_at_none() -> None:
    async with running(Yard(Limits())) as one:
        live, away = one.rider("live"), one.rider("away")
        await until(lambda: all(flow.state is CaravanFlowState.TRAVELLING for flow in one.fleet.flows))
        end = one.source.write(3)
        await until(lambda: all(flow.place == end.order for flow in one.fleet.flows))
        assert list(one.fleet._wanting(one.fleet.lead)) == []
        one.fleet.hold(away.flow, "the test said so")
        assert list(one.fleet._wanting(one.fleet.lead)) == []
        one.fleet.hold(live.flow, "the test said so")
        one.fleet.resume(away.flow)
        assert list(one.fleet._wanting(one.fleet.lead)) == [away.flow]
        await travelling(away)
