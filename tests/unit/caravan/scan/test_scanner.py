"""The reader of existing rows over a fleet that runs: what flows receive, and what it does when something is wrong."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NoReturn

import pytest

from caravan.backfill.boundaries import MemoryBoundaries
from caravan.backfill.progress import BackfillRequest, Unconfirmed
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import Piece
from caravan.scan.scanner import Scanner, ScanSettings
from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables, key_order
from tests.support.eventually import patience, until
from tests.support.rows_received import Copy, Receiver
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.errors import ChunkUnavailable, SourceUnavailable, UnreadableTable, UnsupportedLog, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.segment import ChunkRange
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op, Value
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.wire.rows import decode_key, encode_key

SETTINGS = ScanSettings(limits=ChunkLimits(rows=3))
BY_LOG = Sharding("log")
NO_LIMITS = Limits()
MIB = 1 << 20


class Tables(MemoryTables):
    """``asked``: the limits of each chunk. ``before``: called before a chunk is read, which may fail by it;
    ``changes``: what becomes of a chunk.
    """

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source)
        self.asked: list[ChunkLimits] = []
        self.before: Callable[[], object] = lambda: None
        self.changes: Callable[[Chunk], Chunk] = lambda chunk: chunk

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        self.asked.append(limits)
        self.before()
        return super().chunk(table, after, until, limits, not_before)

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        return self.changes(super().rows(table, keys, not_before))


def times(count: int, act: Callable[[], object]) -> Callable[[], None]:
    """Does it so many times."""
    left = iter(range(count))

    def acted() -> None:
        if next(left, None) is not None:
            act()

    return acted


def fail(error: Exception) -> NoReturn:
    raise error


class World:
    """A source, its tables, and a fleet with a scanner."""

    def __init__(
        self, sharding: Sharding = BY_LOG, settings: ScanSettings = SETTINGS, limits: Limits = NO_LIMITS
    ) -> None:
        self.source = MemorySource(log="log", sharding=sharding)
        self.tables = Tables(self.source)
        self.boundaries = MemoryBoundaries()
        self.fleet = Fleet(self.source, limits, FleetEvents(lambda *_: None, lambda *_: None), lambda: 0.0)
        self.scanner = Scanner(self.fleet, self.tables, self.boundaries, settings)
        self.receivers: list[Receiver] = []
        self.version = 0
        self.start = self.source.latest()

    def put(self, *keys: int, op: Op = Op.INSERT, table: str = "t", **more: Value) -> Datamarker:
        self.version += 1
        return self.source.commit([(op, table, key, {"v": self.version, **more}) for key in keys])

    def put_and_read(self, *keys: int, **more: Value) -> None:
        """Update them, and wait until the lead has read that."""
        self.read(self.put(*keys, op=Op.UPDATE, **more))  # type: ignore[arg-type]

    def read(self, marker: Datamarker) -> None:
        """Wait until the lead has read up to there."""
        until(lambda: self.fleet.lead is not None and self.fleet.lead.marker == marker, "the lead reads the log")

    async def copied(self, **request: object) -> Receiver:
        """The copy of an application that joins now, once it is made."""
        receiver = self.join(**request)  # type: ignore[arg-type]
        await self.finished()
        assert self.matches(receiver)
        return receiver

    def join(self, marker: Datamarker | None = None, text: str = "", **request: object) -> Receiver:
        receiver = Receiver(
            "log",
            self.source.latest() if marker is None else marker,
            key_order,
            Filter.parse(text or None),
            BackfillRequest(1, **request),  # type: ignore[arg-type]
        )
        self.add(receiver)
        return receiver

    def add(self, receiver: Receiver) -> None:
        def wake() -> None:
            if receiver.take():
                receiver.stored = receiver.flow.marker
                self.fleet.moved(receiver.flow)

        loop = asyncio.get_running_loop()
        receiver.flow.wake = lambda: loop.call_soon(wake)  # type: ignore[assignment]
        self.receivers.append(receiver)
        self.fleet.add(receiver.flow)

    def matches(self, receiver: Receiver) -> bool:
        mine: dict[str, dict[object, object]] = {name: {} for name in self.tables.all_rows()}
        for (table, key), (row, _) in receiver.copy.rows.items():
            mine[table][key] = row
        return mine == self.tables.all_rows()

    async def wait(self, done: Callable[[], bool]) -> None:
        async with patience():
            while not done():  # noqa: ASYNC110 - what no event reports
                await asyncio.sleep(0.01)

    async def finished(self, *receivers: Receiver) -> None:
        await self.wait(lambda: all(one.backfill.finished for one in receivers or self.receivers))
        await self.wait(lambda: all(one.flow.place == self.source.latest().order for one in self.receivers))


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    tasks = [asyncio.create_task(world.fleet.run(world.start)), asyncio.create_task(world.scanner.run())]
    try:
        yield world
    finally:
        world.scanner.stop()
        await tasks[1]
        tasks[0].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[0]


@pytest.fixture
def world() -> World:
    return World()


async def test_existing_rows_then_changes(world: World) -> None:
    world.put(*range(10))
    world.put(3, op=Op.UPDATE)
    async with running(world):
        receiver = await world.copied()
        assert (receiver.copy.finished, len(receiver.copy.reads)) == (["t"], 10)
        world.put(3, op=Op.UPDATE)
        await world.wait(lambda: world.matches(receiver))
    status = world.scanner.status
    assert (status.rows, status.chunks, status.estimates) == (10, 4, {"t": 10})


async def test_ids_of_rows_rise_with_the_scan(world: World) -> None:
    world.put(*range(5))
    async with running(world):
        ids: list[str] = []
        receiver = world.join()
        receiver.copy._apply = lambda update: ids.append(update.id)  # type: ignore[method-assign]
        await world.wait(lambda: receiver.backfill.finished)
    assert ids == ["read:1:1:0", "read:1:1:1", "read:1:1:2", "read:1:2:0", "read:1:2:1"]
    assert world.boundaries.next_scan() == 2


async def test_applications_share_one_scan_and_a_late_one_gets_what_it_missed(world: World) -> None:
    world.put(*range(30))
    async with running(world):
        first = world.join()
        second = world.join()
        await world.wait(lambda: first.backfill.rows > 8)
        late = world.join()
        await world.finished()
        assert all(world.matches(one) for one in (first, second, late))
    assert world.scanner.status.rows <= 30 + 30


async def test_waits_until_what_the_log_shows_is_visible(world: World) -> None:
    old = world.put(*range(4))
    world.tables.visible = old
    world.put(2, op=Op.UPDATE)
    async with running(world):
        receiver = world.join()
        await world.wait(lambda: "not visible yet" in world.scanner.status.waits.text)
        assert not receiver.copy.reads
        world.tables.visible = None
        await world.finished()
        assert world.matches(receiver)


async def test_a_table_that_cannot_be_read_is_refused_and_the_others_go_on(world: World) -> None:
    world.put(1, 2)
    world.put(1, 2, table="u")
    world.tables.refused["u"] = Problem("it has no key", "give it one")
    async with running(world):
        receiver = world.join()
        named = world.join(tables=("t", "gone"))
        unwanted = world.join(text='table == "t"', tables=("u",))
        await world.finished()
        assert receiver.backfill.refused == {"u": Problem("it has no key", "give it one")}
        assert named.backfill.refused == {
            "gone": Problem("there is no table gone", "correct the name", "table-unknown")
        }
        assert unwanted.backfill.refused == {}, "of the shard of a table that its filter does not want"
        assert len(receiver.copy.reads) == 2


async def test_goes_on_after_the_datastore_was_away(world: World) -> None:
    world.put(*range(10))
    world.tables.before = times(3, lambda: fail(SourceUnavailable("killed", hint="it is tried again")))
    async with running(world):
        world.join()
        await world.wait(lambda: world.scanner.status.waits.text == "killed")
        await world.finished()
        assert world.matches(world.receivers[0])


async def test_a_table_that_is_truncated_all_the_time_holds_up_no_other(world: World) -> None:
    world.put(*range(10))
    world.put(*range(10), table="u")
    done = threading.Event()

    def truncate() -> None:
        if not done.is_set():
            world.read(world.source.commit([(Op.TRUNCATE, "t", ())]))
            world.put(*range(10))

    world.tables.on_snapshot = truncate
    async with running(world):
        receiver = world.join()
        await world.wait(lambda: "u" in receiver.copy.finished)
        assert "t" not in receiver.copy.finished
        done.set()
        await world.finished()
        assert world.matches(receiver)


async def test_a_chunk_whose_window_does_not_fit_is_read_again_behind_it() -> None:
    world = World(settings=replace(SETTINGS, memory=1000))
    world.put(*range(3))
    world.tables.on_snapshot = times(2, lambda: world.put_and_read(1, name="x" * 1000))
    async with running(world):
        await world.copied()
    assert world.scanner.status.discards >= 1


async def test_a_key_read_alone_concerns_the_flow_of_its_shard_only() -> None:
    """An application has flows of several shards, and one table for the rows of all of them. Ranges of texts say
    nothing.
    """
    world = World(Sharding("hash", 2))
    row: dict[str, Value] = {"v": 1, "name": b"a"}
    world.source.commit([(Op.INSERT, "t", key, row) for key in "abcdefgh"])
    shards = {key: world.tables.shard_of("t", encode_key((key,))) for key in "abcdefgh"}
    names = sorted(set(shards.values()))
    touched = {shard: next(key for key in shards if shards[key] == shard) for shard in names}
    left = list(touched.values())

    told: dict[str, set[bytes]] = {shard: set() for shard in names}

    def take(piece: Piece, shard: str) -> None:
        if piece.chunk is not None:
            told[shard] |= {*piece.chunk.alone} - {*piece.chunk.left_out}
        Copy.take(copy, piece, shard)

    world.tables.on_snapshot = times(
        len(names), lambda: world.read(world.source.commit([(Op.MERGE, "t", left.pop(), {"name": b"b"})]))
    )
    copy = Copy(key_order, 1)
    copy.take = take  # type: ignore[method-assign]
    async with running(world):
        for shard in names:
            receiver = Receiver(shard, world.source.latest(), key_order, Filter.parse(None), BackfillRequest(1))
            receiver.copy = copy
            world.add(receiver)
        await world.finished()
        assert world.matches(world.receivers[0])
    assert told == {shard: {encode_key((key,))} for shard, key in touched.items()}
    assert len(copy.reads) == 8


async def test_keys_that_a_subscriber_named_are_read_once_and_the_table_finishes_again() -> None:
    world = World(Sharding("hash", 2))
    world.put(*range(8))
    shards = {key: world.tables.shard_of("t", encode_key((key,))) for key in range(2000)}
    mine = shards[0]
    gone = [key for key in range(8, 2000) if shards[key] == mine]
    foreign = [next(key for key in range(8) if shards[key] != mine), next(k for k in range(8, 99) if shards[k] != mine)]
    no_keys = [encode_key(()), encode_key((1, 2))]
    ends: list[ChunkRange] = []

    def take(piece: Piece, shard: str) -> None:
        ends.extend([piece.chunk] if piece.chunk is not None and piece.chunk.alone else ())
        Copy.take(receiver.copy, piece, shard)

    async with running(world):
        receiver = Receiver(mine, world.source.latest(), key_order, Filter.parse(None), BackfillRequest(1, verify=True))
        receiver.copy.take = take  # type: ignore[method-assign]
        world.add(receiver)
        await world.finished()
        named = [encode_key((key,)) for key in (0, *foreign, *gone)] + no_keys
        receiver.backfill.confirm("t", named)
        assert not receiver.backfill.finished
        await world.finished()
    told = [key for end in ends for key in end.alone if key not in end.left_out]
    assert sorted(map(decode_key, told)) == [(0,), *((key,) for key in gone)]
    assert max(len(end.alone) for end in ends) <= 500
    assert receiver.copy.reads.count(("t", (0,))) == 2
    assert receiver.copy.finished == ["t", "t"]
    assert receiver.backfill.unconfirmed("t") == Unconfirmed(foreign=4)


@pytest.mark.parametrize("error", [UnreadableTable, SourceUnavailable, UnsupportedLog])
async def test_keys_that_a_subscriber_named_cost_no_flow_its_table(error: type[WormholeError], world: World) -> None:
    world.put(*range(3))
    read, bad = world.tables.rows, encode_key((99,))

    def rows(table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        if bad in keys:
            raise error("no date or time")
        return read(table, keys, not_before)

    world.tables.rows = rows  # type: ignore[method-assign]
    async with running(world):
        receiver, other = world.join(verify=True), world.join()
        await world.finished()
        receiver.backfill.confirm("t", [bad])
        await world.finished()
        assert receiver.backfill.unconfirmed("t") == Unconfirmed(foreign=1)
        assert (receiver.copy.finished, receiver.backfill.refused, other.backfill.refused) == (["t", "t"], {}, {})


async def test_a_key_that_changes_while_it_is_read_is_left_to_the_log(world: World) -> None:
    world.put(1)
    async with running(world):
        receiver = await world.copied(verify=True)
        world.tables.on_snapshot = times(1, lambda: world.read(world.put(2)))
        receiver.backfill.confirm("t", [encode_key((2,))])
        await world.finished()
        assert receiver.backfill.unconfirmed("t") == Unconfirmed(changed=1)
        assert world.matches(receiver)


async def test_the_loop_is_free_while_a_chunk_is_read(world: World) -> None:
    world.put(1)
    reading, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reading.set()
        go_on.wait(60)

    world.tables.on_snapshot = hold
    async with running(world):
        receiver = world.join()
        await world.wait(reading.is_set)
        marker = world.put(2)
        await world.wait(lambda: receiver.flow.place == marker.order)
        assert not receiver.copy.reads
        go_on.set()
        await world.finished()
        assert world.matches(receiver)


async def test_rows_enter_however_fast_the_lead_reads(world: World) -> None:
    world.put(*range(4))
    call = world.scanner._call
    looks = [0]

    async def slow(function: Callable[..., object], *arguments: object) -> object:
        """The lead reads a segment during each look at the window, unless it waits for that."""
        found = await call(function, *arguments)
        lead = world.fleet.lead
        if lead is not None and looks[0] < 1000 and getattr(function, "func", None) is not None:
            looks[0] += 1
            marker = world.put(2, op=Op.UPDATE)
            while lead.marker != marker and not lead.appends.locked():  # noqa: ASYNC110 - what no event reports
                await asyncio.sleep(0)
        return found

    world.scanner._call = slow  # type: ignore[method-assign,assignment]
    async with running(world):
        receiver = world.join()
        await world.finished()
        assert world.matches(receiver)
    assert looks[0] < 1000


@pytest.mark.parametrize(
    ("rate", "most"), [(16 * MIB, int(0.008 * 16 * MIB)), (MIB, 64 << 10), (math.inf, ChunkLimits().bytes)]
)
async def test_at_a_rate_chunks_are_small(rate: float, most: int) -> None:
    """What came while a chunk is read, sent and taken waits for it."""
    world = World(settings=ScanSettings(rate))
    world.put(*range(10))
    async with running(world):
        await world.copied()
    assert [limits.bytes for limits in world.tables.asked] == [most]


async def test_the_rate_is_that_of_the_rows_and_not_of_the_memory_they_take(world: World) -> None:
    settings = replace(SETTINGS, rate=math.inf)
    world.scanner = Scanner(world.fleet, world.tables, world.boundaries, settings, clock=Clock(monotonic=lambda: 1.0))
    world.put(*range(10))
    async with running(world):
        await world.copied()
        rows = world.tables.chunk("t", None, None, ChunkLimits(), world.start).rows.values()
    assert world.scanner.status.rate * 5 == sum(map(len, rows))


@pytest.mark.parametrize("name", ["can_ask", "shard_of"])
@pytest.mark.parametrize("error", [SourceUnavailable, UnsupportedLog, MemoryError])
async def test_a_key_that_cannot_be_looked_at_stops_no_other_rows(
    name: str, error: type[Exception], world: World
) -> None:
    world.put(*range(3))
    whole, bad = getattr(world.tables, name), encode_key((99,))
    setattr(world.tables, name, lambda table, key: fail(error("gone away")) if key == bad else whole(table, key))
    async with running(world):
        receiver = await world.copied(verify=True)
        receiver.backfill.confirm("t", [bad])
        other = await world.copied()
        assert receiver.backfill.unconfirmed("t") == Unconfirmed(foreign=1)
        assert (receiver.copy.finished, other.copy.finished) == (["t", "t"], ["t"])


async def test_another_spelling_of_a_key_that_is_there_is_not_gone() -> None:
    world, spelled = World(), encode_key((99,))
    world.put(1)
    world.tables.changes = lambda chunk: replace(chunk, unclear=[spelled])
    async with running(world):
        receiver = await world.copied(verify=True)
        receiver.backfill.confirm("t", [spelled])
        await world.finished()
        assert receiver.backfill.unconfirmed("t") == Unconfirmed(foreign=1)


@pytest.mark.parametrize(("error", "smaller"), [(SourceUnavailable("away"), False), (ChunkUnavailable("killed"), True)])
async def test_only_what_has_to_do_with_its_size_makes_a_chunk_smaller(error: SourceUnavailable, smaller: bool) -> None:
    world = World(settings=replace(SETTINGS, limits=ChunkLimits(rows=8)))
    world.put(*range(10))
    world.tables.before = times(1, lambda: fail(error))
    async with running(world):
        await world.copied()
    assert [limits.rows for limits in world.tables.asked[:2]] == [8, 4 if smaller else 8]


async def test_a_rate_of_zero_pauses_and_says_so() -> None:
    world = World(settings=replace(SETTINGS, rate=0.0))
    world.put(1)
    paused = Problem("the rate is 0", "set a rate to go on", "backfill-waiting")
    async with running(world):
        receiver = world.join()
        await world.wait(lambda: world.scanner.status.waits == paused)
        world.scanner.change(SETTINGS)
        await world.finished()
        assert world.matches(receiver)


async def test_nothing_is_read_for_flows_that_cannot_take_it(world: World) -> None:
    world.put(*range(10))
    async with running(world):
        receiver = world.join()
        receiver.has_room = False
        await world.wait(lambda: "no flow can take rows now" in world.scanner.status.waits.text)
        assert world.scanner.status.rows == 0
        receiver.has_room = True
        world.scanner.moved()
        await world.finished()
        assert world.matches(receiver)
