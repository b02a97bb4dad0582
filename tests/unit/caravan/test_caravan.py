"""One caravan through its ``run``: what it reads and when, for whom it waits, and how it ends.

`test_fleet.py` has many of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from caravan.caravan import Caravan
from caravan.flow import CaravanFlow, CaravanFlowState
from caravan.rate import RateCap
from datastores.memory.source import MemorySource
from tests.support.eventually import patience
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader

SHARD = "log"
KIB, MIB = 1 << 10, 1 << 20


class Clock:
    """Goes on when a caravan pauses or reads, and not otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """Reads the memory log, notes what was asked and read, and takes ``took`` seconds of the clock for it."""

    def __init__(self, reader: LogReader, clock: Clock) -> None:
        self.reader, self.clock = reader, clock
        self.took = 0.0
        self.reads: list[tuple[float, int, int]] = []
        """When, bytes asked for, bytes of log read."""
        self.waits = 0
        self.rests = False
        """Every second segment is a small one."""

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        self.waits += 1
        most = max_bytes // 16 if self.rests and len(self.reads) % 2 else max_bytes
        segment = self.reader.read(most, wait_s)
        self.clock.now += self.took
        if segment is not None:
            self.reads.append((self.clock.now, max_bytes, segment.log_bytes))
        return segment

    def close(self) -> None:
        self.reader.close()


class Settings:
    """A fleet as its caravan sees it."""

    def __init__(self) -> None:
        self.read_bytes = 64 * KIB
        self.total_cap = RateCap(0.0)
        self.most = 1 << 40
        self.gather = 0.0
        self.kept = 0
        self.behind: list[tuple[str, str]] = []
        self.markers: list[Datamarker] = []

    def budget(self, caravan: Caravan) -> int:
        return self.most

    def kept_for_lead(self, caravan: Caravan) -> int:
        return self.kept

    def gather_s(self) -> float:
        return self.gather

    def may_leave(self, caravan: Caravan) -> bool:
        return True

    def left(self, caravan: Caravan, flow: CaravanFlow) -> None:
        self.behind.append((flow.application, flow.cause))

    def advanced(self, caravan: Caravan, segment: Segment) -> None:
        self.markers.append(caravan.marker)


class Road:
    """A log, the fleet's settings, and caravans on the test's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = MemorySource(log=SHARD, sharding=Sharding("log"))
        self.start = self.source.latest()
        self.clock = Clock()
        self.settings = Settings()
        self.pauses: list[float] = []
        self._monkeypatch = monkeypatch
        self._numbers = 0
        self.sharded = False
        """By table; see :func:`by_table`."""

    def write(self, count: int, size: int = KIB) -> Datamarker:
        """``count`` transactions of one update of ``size`` bytes."""
        for _ in range(count):
            marker = self.source.commit([(Op.UPSERT, "t", b"k", {"value": b"v" * size})])
        return marker

    def by_the_clock(self) -> None:
        """Pauses take no time but the clock's."""

        async def pause(caravan: Caravan, seconds: float) -> None:
            self.pauses.append(seconds)
            self.clock.now += seconds
            await asyncio.sleep(0)

        self._monkeypatch.setattr(Caravan, "_pause", pause)

    @asynccontextmanager
    async def caravan(self, rate: float = 0.0) -> AsyncIterator[tuple[Caravan, Reader, asyncio.Task[None]]]:
        self._numbers += 1
        reader = Reader(self.source.open(self.start), self.clock)
        caravan = Caravan(self._numbers, self.start, reader, self.settings, rate, "a test")
        task = asyncio.create_task(caravan.run(self.clock))
        try:
            yield caravan, reader, task
        finally:
            caravan.stop()
            await asyncio.gather(task, return_exceptions=True)
            caravan.close()

    def flow(self, name: str = "app", wake: Callable[[], None] = lambda: None) -> CaravanFlow:
        return CaravanFlow(name, SHARD, Filter.parse(None), self.start, 1, wake)


@pytest.fixture
def road(monkeypatch: pytest.MonkeyPatch) -> Road:
    return Road(monkeypatch)


async def until(true: Callable[[], object]) -> None:
    """Wait for what no event tells."""
    async with patience():
        while not true():  # noqa: ASYNC110 - the reason is above
            await asyncio.sleep(0.001)


def most_in_a_second(reads: list[tuple[float, int, int]]) -> int:
    """The most log that was read in any second."""
    return max(sum(size for at, _, size in reads if begin <= at < begin + 1.0) for begin, _, _ in reads)


# --- how fast


@pytest.mark.parametrize("took", [0.0, 0.004])
async def test_no_second_exceeds_the_caravans_rate_and_it_is_used(road: Road, took: float) -> None:
    rate = 1.0 * MIB
    end = road.write(3000)
    road.by_the_clock()
    async with road.caravan(rate) as (caravan, reader, _):
        reader.took = took
        await until(lambda: caravan.marker == end)
        seconds = road.clock.now - 100.0
    assert most_in_a_second(reader.reads) <= rate
    assert caravan.read_bytes / seconds > 0.85 * rate
    assert caravan.read_bytes == sum(size for _, _, size in reader.reads)


async def test_no_second_of_two_caravans_exceeds_the_cap_of_all(road: Road) -> None:
    rate = 1.0 * MIB
    road.settings.total_cap = RateCap(rate)
    end = road.write(1500)
    road.by_the_clock()
    async with road.caravan() as (one, first, _), road.caravan() as (two, second, _):
        await until(lambda: one.marker == end and two.marker == end)
    assert most_in_a_second(sorted(first.reads + second.reads)) <= rate


async def test_an_update_larger_than_the_rate_is_read_whole_and_paid_for_afterwards(road: Road) -> None:
    road.write(1, 300 * KIB)
    end = road.write(1)
    road.by_the_clock()
    async with road.caravan(100.0 * KIB) as (caravan, reader, _):
        await until(lambda: caravan.marker == end)
    (first, _, size), (second, _, _) = reader.reads
    assert size > 300 * KIB
    assert second - first > 2.9
    assert max(road.pauses) <= 0.25, "the rate may rise meanwhile: it is looked at again soon"


async def test_what_is_kept_for_the_lead_is_not_taken(road: Road) -> None:
    road.settings.total_cap = RateCap(1.0 * MIB)
    road.settings.kept = 2 * MIB  # more than ever flows in
    road.write(10)
    road.by_the_clock()
    async with road.caravan() as (_, reader, _):
        await until(lambda: len(road.pauses) > 100)
        assert reader.waits == 0
        road.settings.kept = 0
        await until(lambda: reader.reads)


async def test_a_higher_rate_counts_while_the_caravan_pauses(road: Road) -> None:
    end = road.write(100)
    road.by_the_clock()
    async with road.caravan(1.0) as (caravan, _, _):
        await until(lambda: len(road.pauses) > 10)
        assert caravan.target == 1.0
        caravan.aim(math.inf, road.clock.now)
        await until(lambda: caravan.marker == end)
        assert caravan.target == 0.0


async def test_a_read_that_finds_nothing_costs_nothing_of_the_cap(road: Road) -> None:
    """At the live end a reader asks all the time; the others would starve by it."""
    road.settings.total_cap = RateCap(1.0 * MIB)
    road.by_the_clock()
    async with road.caravan() as (_, reader, _):
        await until(lambda: reader.waits == 2)
        piece = road.settings.total_cap.piece
        assert road.settings.total_cap.delay(piece, road.clock.now) == 0.0


@pytest.mark.parametrize("rests", [False, True], ids=["full segments", "full ones and rests, as of files"])
async def test_a_backlog_is_read_without_a_pause_and_the_live_end_at_the_gather_interval(
    road: Road, rests: bool
) -> None:
    road.settings.gather = 0.008
    end = road.write(640)
    road.by_the_clock()
    async with road.caravan() as (caravan, reader, _):
        reader.rests = rests
        await until(lambda: caravan.marker == end)
        assert (len(reader.reads) > 12) is rests
        assert len(road.pauses) <= rests, "there is nothing to gather, but at the end"
        reader.rests = False
        for _ in range(5):
            last = road.write(1)
            await until(lambda last=last: caravan.marker == last)  # type: ignore[misc]
    live = [at for at, _, _ in reader.reads][-4:]  # the first small one may be the rest of a backlog
    assert all(later - earlier >= 0.0079 for earlier, later in pairwise(live))


async def test_the_speed_is_that_of_the_last_seconds(road: Road) -> None:
    end = road.write(10)
    async with road.caravan() as (caravan, _, _):
        await until(lambda: caravan.marker == end)
        assert caravan.bytes_per_s(road.clock.now + 4.9) == caravan.read_bytes / 5.0
        assert caravan.bytes_per_s(road.clock.now + 5.1) == 0.0


# --- what it tells


async def test_flows_wake_and_the_fleet_hears_the_marker_before_each_segment(road: Road) -> None:
    woken: list[None] = []
    async with road.caravan() as (caravan, _, _):
        caravan.board(road.flow(wake=lambda: woken.append(None)), 0)
        one = road.write(1)
        await until(lambda: caravan.marker == one)
        two = road.write(1)
        await until(lambda: caravan.marker == two)
    assert road.settings.markers == [road.start, one]
    assert len(woken) == 3  # boarding, and each segment
    assert repr(caravan) == f"<Caravan 1 at {two.order}, 1 flows>"


async def test_inside_a_transaction_the_marker_stays(road: Road) -> None:
    end = road.source.commit([(Op.UPSERT, "t", b"k%d" % i, {"value": b"v" * KIB}) for i in range(256)])
    async with road.caravan() as (caravan, reader, _):
        await until(lambda: caravan.marker == end)
    assert len(reader.reads) > 2
    assert set(road.settings.markers) == {road.start}


# --- room


async def test_without_flows_the_oldest_goes(road: Road) -> None:
    road.settings.most = 200 * KIB
    end = road.write(2000)
    async with road.caravan() as (caravan, _, _):
        await until(lambda: caravan.marker == end)
        assert caravan.buffer.size <= road.settings.most + 2 * road.settings.read_bytes
        assert caravan.buffer.first > 0


async def test_nobody_is_held_up_so_the_reader_waits_for_the_slowest(road: Road) -> None:
    road.settings.most = 200 * KIB
    end = road.write(2000)
    async with road.caravan() as (caravan, reader, _):
        flow = road.flow()
        caravan.board(flow, 0)
        await until(lambda: caravan.buffer.size > road.settings.most)
        read = reader.waits
        for _ in range(20):
            await asyncio.sleep(0)
        assert (reader.waits, flow.state, road.settings.behind) == (read, CaravanFlowState.TRAVELLING, [])
        while caravan.marker != end:
            while flow.peek() is not None:
                flow.take()
            caravan.moved()
            await asyncio.sleep(0)
            assert caravan.buffer.size <= road.settings.most + 2 * road.settings.read_bytes
        assert road.settings.behind == []


def by_table(road: Road, table: str, wake: Callable[[], None] = lambda: None) -> CaravanFlow:
    """A flow of one table's shard; the road's log is sharded by table then."""
    if not road.sharded:
        road.source, road.sharded = MemorySource(log=SHARD, sharding=Sharding("table")), True
        road.start = road.source.latest()
    return CaravanFlow("app", f"{SHARD}.{table}", Filter.parse(None), road.start, 1, wake)


async def test_a_segment_wakes_the_flows_of_its_shards_only(road: Road) -> None:
    woken: list[str] = []
    of_t = by_table(road, "t", lambda: woken.append("t"))
    of_u = by_table(road, "u", lambda: woken.append("u"))
    async with road.caravan() as (caravan, _, _):
        caravan.board(of_t, 0)
        caravan.board(of_u, 0)
        woken.clear()
        end = road.write(1)
        await until(lambda: caravan.marker == end and woken)
        assert woken == ["t"]
        of_u.pass_over()
        assert (of_u.place, of_u.cursor) == (end.order, caravan.buffer.end)
        of_t.pass_over()
        assert of_t.place == road.start.order, "there is something for it"


async def test_who_has_nothing_to_take_is_not_left_behind(road: Road) -> None:
    """Nobody wakes it for segments of other shards, and it must not count as slow for that."""
    road.settings.most = 200 * KIB
    busy = by_table(road, "t", lambda: drain(busy, caravan))
    idle = by_table(road, "u")
    end = road.write(2000)
    async with road.caravan() as (caravan, _, _):
        caravan.board(busy, 0)
        caravan.board(idle, 0)
        await until(lambda: caravan.marker == end)
        assert road.settings.behind == []
        assert idle.state is CaravanFlowState.TRAVELLING
        assert caravan.buffer.size <= road.settings.most + 2 * road.settings.read_bytes


def drain(flow: CaravanFlow, caravan: Caravan) -> None:
    while flow.peek() is not None:
        flow.take()
    caravan.moved()


# --- the end


async def test_a_stop_ends_the_waiting_for_room(road: Road) -> None:
    road.settings.most = 100 * KIB
    road.write(1000)
    async with road.caravan() as (caravan, reader, task):
        caravan.board(road.flow(), 0)
        await until(lambda: caravan.buffer.size > road.settings.most)
        await asyncio.sleep(0)
        read = reader.waits
        caravan.stop()
        async with patience():
            await asyncio.shield(task)
        assert reader.waits == read


async def test_a_flow_is_ahead_until_the_reader_has_reached_its_place(road: Road) -> None:
    ahead, live, left = (CaravanFlow(name, SHARD, Filter.parse(None), road.write(1), 1, lambda: None) for name in "alx")
    async with road.caravan() as (caravan, _, task):
        caravan.stop()  # it reads nothing by itself here
        await asyncio.gather(task, return_exceptions=True)
        for flow in (ahead, live, left):
            caravan.board(flow, caravan.buffer.end)
        assert set(caravan.ahead) == {ahead, live, left}
        caravan.leave(left, CaravanFlowState.WAITING, "the test said so")
        for place in (live.place, ahead.place):
            caravan.buffer.place = max(place, caravan.buffer.place)
        assert not caravan.ahead
        caravan.buffer.place = road.start.order
        assert not caravan.ahead, "what was reached is not looked at again"
