"""``on_schema``: what changes with a table's schema, and when the application hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subscriber_sdk import Op, RetryPolicy, SchemaChange, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, body_of, frames, update
from subscriber_sdk.work.schemas import TABLE_BYTES
from tests.support.flows import NewWorld, Recorder
from wormhole.model.errors import HandlerFailed
from wormhole.model.schema import Column, Schema


def old(key: int, table: str = "t") -> Change:
    return update(table, key=key, after={"id": key, "name": "a"})


def new(key: int, table: str = "t") -> Change:
    return update(table, key=key, after={"id": key, "name": "a", "age": 7})


class Watching(Subscriber):
    """``failures``: how often ``on_schema`` raises before it takes a change that is not a table's first."""

    def __init__(self, failures: int = 0) -> None:
        self.heard: list[Any] = []
        self.failures = failures

    async def on_schema(self, change: SchemaChange) -> None:
        if change.old is not None and self.failures:
            self.failures -= 1
            raise ValueError("not yet")
        was = None if change.old is None else len(change.old.columns)
        self.heard.append((change.table, was, len(change.new.columns), change.update_id))

    async def on_update(self, update: Update) -> None:
        self.heard.append(update.key[0] if update.key else update.op.value)

    async def on_rollback(self, to: Any, cause: Exception) -> None:
        self.heard.append("rollback")


class InBatches(Watching):
    on_update = Subscriber.on_update  # type: ignore[assignment]

    async def on_updates(self, batch: Any) -> None:
        self.heard += [update.key[0] for update in batch]


class InThreads(Subscriber):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_schema(self, change: SchemaChange) -> None:
        self.heard.append((change.table, change.old and 2, len(change.new.columns), change.update_id))

    def on_update(self, update: Update) -> None:
        self.heard.append(update.key[0])


@pytest.mark.parametrize(("kind", "concurrency"), [(Watching, 1), (Watching, 8), (InBatches, 1), (InThreads, 1)])
def test_a_change_comes_between_the_updates(kind: Any, concurrency: int, wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := kind(), concurrency=concurrency)
    flow.commit(old(1), old(2), new(3), new(4))
    flow.commit(new(5), old(6, "u"))
    assert subscriber.heard == [
        ("t", None, 2, "test:1:0"),
        1,
        2,
        ("t", 2, 3, "test:1:2"),
        3,
        4,
        *(5, ("u", None, 2, "test:2:1"), 6),
    ]
    assert flow.datamarker == flow.end


def test_nothing_runs_beside_it(wormhole_kit: Kit) -> None:
    class Overlapping(Subscriber):
        def __init__(self) -> None:
            self.running = self.most = self.changes = 0

        async def on_schema(self, change: SchemaChange) -> None:
            assert not self.running
            self.running += 1
            await asyncio.sleep(1)
            assert self.running == 1
            self.running -= 1
            self.changes += 1

        async def on_update(self, update: Update) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(1)
            self.running -= 1

    flow = wormhole_kit.attach(subscriber := Overlapping(), concurrency=8, retry=1)
    flow.commit(old(1), old(2), new(3), new(4), old(5, "u"))
    assert (subscriber.changes, subscriber.most) == (3, 2)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_after_a_rollback_it_comes_again_with_its_updates(concurrency: int, wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Watching(failures=1), concurrency=concurrency)
    flow.commit(old(1))
    subscriber.heard.clear()
    flow.commit(old(2), new(3), pieces=2)
    change = ("t", 2, 3, "test:2:1")
    assert subscriber.heard == [2, "rollback", 2, change, 3]
    assert flow.datamarker == flow.end


@pytest.mark.parametrize("concurrency", [1, 8])
def test_one_that_keeps_failing_halts_the_flow_and_parks_nothing(concurrency: int, wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(
        subscriber := Watching(failures=9),
        concurrency=concurrency,
        retry=RetryPolicy(attempts=2),
        on_failure="park",
    )
    with pytest.raises(HandlerFailed, match="not yet"):
        flow.commit(old(1), new(2))
    assert flow.halted is not None
    assert flow.halted.update_id == ""
    assert subscriber.heard.count(1) == 2
    assert 2 not in subscriber.heard


def test_an_operation_on_a_whole_table_is_no_change(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Watching())
    flow.commit(old(1), update("t", key=(), op=Op.TRUNCATE), old(2))
    assert subscriber.heard == [("t", None, 2, "test:1:0"), 1, "truncate", 2]


def test_each_epoch_begins_with_what_is_there(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Watching())
    flow.commit(old(1))
    flow.crash_and_redeliver()
    assert subscriber.heard == [("t", None, 2, "test:1:0"), 1] * 2


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_updates_before_it_count_when_it_fails(concurrency: int, new_world: NewWorld) -> None:
    """Else the publisher would count them as never processed."""
    world, publisher = new_world(
        Watching(failures=1), retry=RetryPolicy(attempts=2, first_wait=0.001), concurrency=concurrency
    )
    await world.open(publisher)
    changes = [old(1), old(2), new(3)]
    publisher.teach(change.schema for change in changes)
    publisher.send(frames.batch(1, 1, 1, body_of(changes)))
    await world.shards.settled()
    progress = [frame.progress for frame in publisher.take("progress")]
    assert [sum(window.updates for window in one.processed) for one in progress] == [2, 5]


async def test_tables_are_counted_as_what_a_publisher_makes_us_keep(new_world: NewWorld) -> None:
    world, publisher = new_world(Watching())
    plain, other = new_world(Recorder())
    changes = [old(1, f"t{n}") for n in range(10)]
    for one, dialled in ((world, publisher), (plain, other)):
        await one.open(dialled)
        dialled.teach(change.schema for change in changes)
        dialled.send(frames.batch(1, 1, 1, body_of(changes)))
        await one.shards.settled()
    assert world.shards.state.used - plain.shards.state.used == 10 * TABLE_BYTES
    for one in (world, plain):
        await one.shards.leave(1)
    assert world.shards.state.used == plain.shards.state.used


@pytest.mark.parametrize("failures", [1, 5])
async def test_a_table_is_counted_once_however_often_its_updates_come_again(failures: int, new_world: NewWorld) -> None:
    class Failing(Watching):
        async def on_update(self, update: Update) -> None:
            if self.failures:
                self.failures -= 1
                raise ValueError("not yet")

    world, publisher = new_world(Failing(failures), retry=RetryPolicy(attempts=10, first_wait=0.001))
    await world.open(publisher)
    publisher.teach([old(1).schema])
    held = world.shards.state.used
    publisher.send(frames.batch(1, 1, 1, body_of([old(1)])))
    await world.shards.settled()
    assert world.shards.state.used - held == TABLE_BYTES


def test_what_changed() -> None:
    id_, name, age = Column("id", "int"), Column("name", "text"), Column("age", "int")
    before = Schema("t", (id_,), (id_, name, age))
    after = Schema("t", (Column("code", "text"),), (Column("code", "text"), Column("id", "text"), age))
    change = SchemaChange("s", 1, "t", "x:1:0", before, after)
    assert change.added == (Column("code", "text"),)
    assert change.removed == (name,)
    assert change.retyped == ((id_, Column("id", "text")),)
    assert change.key_changed
    first = SchemaChange("s", 1, "t", "x:1:0", None, after)
    assert (first.added, first.removed, first.retyped, first.key_changed) == (after.columns, (), (), False)
