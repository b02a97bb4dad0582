"""Records of whole transactions reach the store, in order, whatever fails."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.records import Record, RecordRefused, RecordSubscriber, RecordWriter
from sinks.records import subscriber as subscriber_module
from sinks.records.held import Budget, Held
from sinks.records.writer import Packed
from subscriber_sdk import Datamarker, HandlerFailed, Update
from subscriber_sdk.testing import Kit, KitFlow, body_of, update
from subscriber_sdk.testing.changes import Change
from tests.support.letters import parcel_of
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.ports.dead_letters import open_parcel
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

MIB = 1 << 20


@dataclass
class Store(RecordWriter):
    """Keeps records. ``refuses``: ids that it never takes. ``away``: how often it fails first."""

    refuses: set[str] = field(default_factory=set)
    away: int = 0
    writes: list[list[str]] = field(default_factory=list)
    marked_at: list[Datamarker] = field(default_factory=list)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        if self.away:
            self.away -= 1
            raise TargetUnavailable("the store is away")
        for record in records:
            if record.id in self.refuses:
                raise RecordRefused(record, "too large")
        self.writes.append([record.id for record in records])

    async def marked(self, marker: Datamarker) -> None:
        self.marked_at.append(marker)

    @property
    def ids(self) -> list[str]:
        """All records, in order."""
        return [id_ for write in self.writes for id_ in write]


def attached(kit: Kit, store: Store, *, memory: int = MIB, disk: int = MIB, on_failure: str = "halt") -> KitFlow:
    subscriber = RecordSubscriber(WormholeEnvelope(), store, Budget(memory, disk))
    return kit.attach(subscriber, retry=2, on_failure="park" if on_failure == "park" else "halt")


def row(key: int, text: str = "") -> Change:
    return update("shop.orders", key=key, after={"text": text})


def test_a_batch_is_one_write_and_is_acknowledged_after_it(wormhole_kit: Kit) -> None:
    store = Store()
    flow = attached(wormhole_kit, store)
    flow.commit(row(1), row(2), row(3))
    assert store.writes == [["test:1:0", "test:1:1", "test:1:2"]]
    assert flow.datamarker == flow.end == store.marked_at[-1]


@pytest.mark.parametrize("memory", [MIB, 1], ids=["in memory", "in a file"])
def test_a_transaction_in_pieces_is_written_when_it_is_complete(wormhole_kit: Kit, memory: int) -> None:
    store = Store()
    flow = attached(wormhole_kit, store, memory=memory)
    flow.commit(*(row(key, "é" * 500) for key in range(9)), pieces=3)
    assert store.ids == [f"test:1:{index}" for index in range(9)]
    flow.commit(row(1))
    assert store.ids[9:] == ["test:2:0"]


def test_a_store_that_is_away_counts_no_attempt(wormhole_kit: Kit) -> None:
    store = Store(away=5)
    flow = attached(wormhole_kit, store)
    flow.commit(row(1), row(2))
    assert store.ids == ["test:1:0", "test:1:1"]
    assert flow.halted is None


def test_what_was_done_with_the_store_is_counted(wormhole_kit: Kit) -> None:
    held: list[int] = []

    class Watching(Store):
        async def write(self, shard: str, records: Sequence[Record]) -> None:
            held.append(subscriber.figures.held()["file"])
            await super().write(shard, records)

    store = Watching(away=1, refuses={"test:2:0"})
    subscriber = RecordSubscriber(WormholeEnvelope(), store, Budget(1, MIB))
    flow = wormhole_kit.attach(subscriber, retry=2, on_failure="park")
    flow.commit(row(1), row(2))
    flow.commit(row(3))
    figures = subscriber.figures
    assert (figures.written, figures.refused) == (2, 1)
    assert figures.size > 400
    assert figures.waited > 0
    assert min(held) > 0
    assert figures.held() == {"memory": 0, "file": 0}


class Packing(Store):
    def packed(self, shard: str, updates: Sequence[Update]) -> Packed:
        return Packed(len(updates), [change.id for change in updates], 0)

    async def write_packed(self, shard: str, packed: Packed) -> None:
        self.writes.append([*packed.parts])


async def test_what_has_no_records_is_written_before_a_transaction_whose_end_was_parked() -> None:
    store = Packing()
    subscriber = RecordSubscriber(WormholeEnvelope(), store, Budget(MIB, MIB))
    schema = row(1).schema
    batch: list[Update] = []
    for number in (1, 2, 3):
        body = parse_body(body_of([row(1), row(2)], number=number))
        batch += Batch(body, "s", 1, False, lambda _: schema).updates()
    del batch[3]  # the last update of the second transaction
    await subscriber.on_updates(batch)
    assert store.ids == ["test:1:0", "test:1:1", "test:2:0", "test:3:0", "test:3:1"]


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_refused_update_is_parked_and_no_other(wormhole_kit: Kit, pieces: int) -> None:
    """In three pieces the store refuses a record of the first one only when the last one has arrived."""
    store = Store(refuses={"test:1:1"})
    flow = attached(wormhole_kit, store, on_failure="park")
    flow.commit(*(row(key) for key in range(6)), pieces=pieces)
    flow.commit(row(7))
    assert flow.parked == ["test:1:1"]
    assert flow.datamarker == flow.end
    assert [id_ for id_ in store.ids if id_ != "test:2:0"][-5:] == [f"test:1:{index}" for index in (0, 2, 3, 4, 5)]
    store.refuses.clear()
    flow.retry()
    assert (flow.parked, store.ids[-1]) == ([], "test:1:1")


def test_a_parked_update_is_forgotten_though_the_shard_is_not_revoked(wormhole_kit: Kit) -> None:
    """A connection that breaks reports no REVOKED, and an operator may have raised the store's limit meanwhile."""
    store = Store(refuses={"test:1:0"})
    flow = attached(wormhole_kit, store, on_failure="park")
    flow.commit(row(1))
    store.refuses.clear()
    flow.cut()
    flow.retry()
    flow.commit(row(2))
    assert (flow.parked, store.ids) == ([], ["test:1:0", "test:2:0"])


def test_the_last_update_of_a_transaction_may_be_parked(wormhole_kit: Kit) -> None:
    store = Store(refuses={"test:1:1"})
    flow = attached(wormhole_kit, store, on_failure="park")
    flow.commit(row(1), row(2))
    flow.commit(row(3))
    assert (flow.parked, sorted(set(store.ids))) == (["test:1:1"], ["test:1:0", "test:2:0"])


def test_a_refused_record_halts_a_flow_that_does_not_park(wormhole_kit: Kit) -> None:
    store = Store(refuses={"test:1:1"})
    flow = attached(wormhole_kit, store)
    with pytest.raises(HandlerFailed):
        flow.commit(row(1), row(2))
    assert flow.halted is not None
    assert isinstance(flow.halted.cause, RecordRefused)


@pytest.mark.parametrize(
    ("error", "means"), [(ConnectionResetError(), TargetUnavailable), (KeyError(7), TargetRefused)]
)
def test_an_error_that_the_writer_does_not_explain_parks_nothing(
    wormhole_kit: Kit, error: Exception, means: type[Exception]
) -> None:
    class Broken(Store):
        async def write(self, shard: str, records: Sequence[Record]) -> None:
            raise error

    flow = attached(wormhole_kit, Broken(), on_failure="park")
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(1), row(2), pieces=2)
    assert isinstance(failed.value.__cause__, means)
    assert flow.parked == []


@dataclass
class Slow(Store):
    """One write ends each callback's turn. ``fails``: ids of the records before which it fails once."""

    most: int = 2
    keeps: bool = True
    fails: set[str] = field(default_factory=set)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        if records[0].id in self.fails:
            self.fails.discard(records[0].id)
            raise TargetUnavailable("away")
        await super().write(shard, records)


@pytest.mark.parametrize("memory", [MIB, 1], ids=["in memory", "in a file"])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_slow_store_is_given_what_it_has_not_confirmed(
    wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch, memory: int, keeps: bool
) -> None:
    monkeypatch.setattr(subscriber_module, "_TURN_S", 0.0 if keeps else math.inf)
    store = Slow()
    store.keeps = keeps
    store.fails = {"test:1:4"}
    flow = attached(wormhole_kit, store, memory=memory)
    flow.commit(*(row(key) for key in range(6)), pieces=2)
    every = [f"test:1:{index}" for index in range(6)]
    assert store.ids == (every if keeps else every[:4] + every)
    flow.commit(row(7))
    flow.crash_and_redeliver(2)
    assert store.ids[-8:] == ["test:2:0", *every, "test:2:0"]


@pytest.mark.parametrize("more", [1, 2], ids=["as many", "more"])
def test_records_that_are_not_those_before_are_all_written(wormhole_kit: Kit, more: int) -> None:
    """Existing rows that are read again may have other changes between them."""

    class Others(Slow):
        async def write(self, shard: str, records: Sequence[Record]) -> None:
            try:
                await super().write(shard, records)
            except TargetUnavailable:
                subscriber._shards[shard].confirmed.add([records[0]._replace(id="another")] * more)
                raise

    store = Others()
    store.most = 1
    store.fails = {"test:1:2"}
    subscriber = RecordSubscriber(WormholeEnvelope(), store, Budget(MIB, MIB))
    flow = wormhole_kit.attach(subscriber, retry=2)
    flow.commit(row(1), row(2), row(3))
    assert store.ids == ["test:1:0", "test:1:1", "test:1:0", "test:1:1", "test:1:2"]
    assert flow.datamarker == flow.end


def test_what_is_held_is_bounded(wormhole_kit: Kit) -> None:
    store = Store()
    flow = attached(wormhole_kit, store, memory=1, disk=2000)
    with pytest.raises(HandlerFailed) as halted:
        flow.commit(*(row(key, "x" * 500) for key in range(9)), pieces=3)
    assert isinstance(halted.value.__cause__, TargetRefused)
    assert store.ids == []


def test_a_shard_that_holds_much_leaves_memory_to_the_others() -> None:
    budget = Budget(100_000, MIB)
    large, small = Held(budget), Held(budget)

    def add(held: Held, number: int) -> int:
        """How often records were written to the file."""
        spilled = 0
        for _ in range(number):
            held.add([Record("id", "id", "table", b"", b"x" * 800)])
            if held.overfull:
                held.spill()
                spilled += 1
        return spilled

    assert add(large, 50) == 0
    assert budget.in_memory == 50_000
    assert add(small, 50) == 1
    assert add(large, 1) == 1, "the larger one gives its memory back when it grows"
    assert budget.in_memory <= budget.memory
    for held in (large, small):
        held.clear()


def test_our_envelope_has_everything_of_an_update(wormhole_kit: Kit) -> None:
    documents: list[bytes | None] = []

    class Documents(Store):
        async def write(self, shard: str, records: Sequence[Record]) -> None:
            documents.extend(record.value for record in records)

    flow = attached(wormhole_kit, Documents())
    flow.commit(update("shop.orders", key=7, before={"text": "a", "n": None}, after={"text": "b", "n": 2**63}))
    (document,) = (json.loads(value) for value in documents if value is not None)
    assert document["id"] == "test:1:0"
    assert (document["op"], document["table"], document["key"]) == ("update", "shop.orders", [7])
    assert (document["before"], document["after"]) == ({"text": "a", "n": None}, {"text": "b", "n": 2**63})
    assert document["ends_transaction"] is True


async def test_cancellation_waits_for_what_writes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise records of the delivery before would be in the file of the next one."""
    begun, ends = asyncio.Event(), threading.Event()
    loop, spill, budget = asyncio.get_running_loop(), Held.spill, Budget(1, MIB)

    def slow(held: Held) -> None:
        loop.call_soon_threadsafe(begun.set)
        ends.wait()
        spill(held)

    monkeypatch.setattr(Held, "spill", slow)
    subscriber = RecordSubscriber(WormholeEnvelope(), Store(), budget)
    call = asyncio.create_task(subscriber.on_updates([open_parcel(parcel_of(row(1)))]))
    await begun.wait()
    call.cancel()
    loop.call_later(0.01, ends.set)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (ends.is_set(), budget.in_memory, budget.on_disk > 0) == (True, 0, True)
    for shard in subscriber._shards.values():
        shard.open.clear()
    assert budget.on_disk == 0
