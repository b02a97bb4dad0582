"""``on_schema`` and ``on_arrow`` in a flow: the guarantees are those of the other callbacks."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from subscriber_sdk import BatchInfo, Datamarker, Op, RetryPolicy, SchemaChange, Subscriber, Update, UsageError
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.testing import Change, Kit, body_of, frames, read, update
from subscriber_sdk.work.schemas import TABLE_BYTES
from tests.support.flows import NewWorld, Recorder
from wormhole.model.errors import HandlerFailed
from wormhole.model.schema import Column, Schema

# --- schemas: ``on_schema``: what changes with a table's schema, and when the application hears of it ---


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


# --- on arrow: ``on_arrow`` in a flow: the guarantees are those of the other callbacks ---


TABLE = "shop.users"


def row(key: int, name: Any = "ada", table: str = TABLE) -> Any:
    return update(table, key={"id": key}, after={"id": key, "name": name})


class Loader(Subscriber):
    """Keeps the ids of each batch; some fail."""

    def __init__(self, *fails: int) -> None:
        self.batches: list[list[int]] = []
        self.calls: list[str] = []
        self.fails = fails

    def loaded(self, batch: pa.RecordBatch) -> None:
        ids = batch.column("id").to_pylist()
        if set(ids) & set(self.fails):
            raise ValueError(f"no {ids}")
        self.batches.append(ids)
        self.calls.append(f"{BatchInfo.of(batch).table} {ids}")

    async def on_arrow(self, batch: pa.RecordBatch) -> None:
        self.loaded(batch)

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.calls.append("datamarker")

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.calls.append("rollback")


class Blocking(Loader):
    """The same in a thread."""

    def on_arrow(self, batch: pa.RecordBatch) -> None:  # type: ignore[override]
        self.loaded(batch)


@pytest.fixture(params=[Loader, Blocking])
def kind(request: pytest.FixtureRequest) -> type[Loader]:
    found: type[Loader] = request.param
    return found


def test_tables_come_one_after_the_other_and_are_acknowledged(wormhole_kit: Kit, kind: type[Loader]) -> None:
    loader = kind()
    flow = wormhole_kit.attach(loader)
    flow.commit(row(1), row(2), row(3, table="shop.orders"), row(4))
    assert loader.calls == ["shop.users [1, 2]", "shop.orders [3]", "shop.users [4]", "datamarker"]
    assert flow.updates == 4
    assert flow.datamarker == flow.end


def test_a_failure_rolls_the_shard_back(wormhole_kit: Kit, kind: type[Loader]) -> None:
    loader = kind(3)
    flow = wormhole_kit.attach(loader, retry=2)
    loader.on_rollback = forgiving(loader)  # type: ignore[method-assign]
    flow.commit(row(1), row(2), row(3, table="shop.orders"), row(4))
    assert loader.batches == [[1, 2], [1, 2], [3], [4]]
    assert flow.datamarker == flow.end


def forgiving(loader: Loader) -> Any:
    async def on_rollback(to: Datamarker, cause: Exception) -> None:
        loader.fails = ()

    return on_rollback


@pytest.mark.parametrize("bad", [1, 2, 4, 5])
def test_the_update_that_fails_is_found_and_parked(wormhole_kit: Kit, kind: type[Loader], bad: int) -> None:
    loader = kind(bad)
    flow = wormhole_kit.attach(loader, on_failure="park", retry=1)
    flow.commit(row(1), row(2), row(3, table="shop.orders"), row(4), row(5))
    assert flow.parked == [f"test:1:{bad - 1}"]
    assert sorted({one for batch in loader.batches for one in batch}) == [one for one in range(1, 6) if one != bad]
    assert flow.datamarker == flow.end


def test_a_row_that_is_no_row_halts_the_flow_at_itself(wormhole_kit: Kit, kind: type[Loader]) -> None:
    bad = row(2)
    flow = wormhole_kit.attach(kind(), retry=1)
    with pytest.raises(HandlerFailed, match="halted at update test:1:1"):
        flow.commit(row(1, table="shop.orders"), replace(bad, row=bad.row[:-2] + b"\x12\xff"))


def test_rows_that_are_gone_are_named_between_batches(wormhole_kit: Kit) -> None:
    loader = Loader()
    loader.on_range = lambda keys: loader.calls.append(f"range of {keys.generation}: {(7,) in keys}")  # type: ignore[method-assign]
    flow = wormhole_kit.attach(loader)
    flow.begin_backfill()
    flow.chunk(TABLE, *(read(TABLE, key={"id": key}, after={"id": key, "name": "x"}) for key in (1, 3)), until=5)
    flow.chunk(TABLE, read(TABLE, key={"id": 9}, after={"id": 9, "name": "x"}), after=5)
    flow.end_scan(TABLE)
    assert [call for call in loader.calls if call != "datamarker"] == [
        "shop.users [1, 3]", "range of 1: False", "shop.users [9]", "range of 1: True",
    ]  # fmt: skip
    assert flow.datamarker == flow.end


def test_a_batch_over_its_time_is_cancelled_and_tried_again(wormhole_kit: Kit) -> None:
    class Stuck(Loader):
        async def on_arrow(self, batch: pa.RecordBatch) -> None:
            if BatchInfo.of(batch).table == "shop.orders" and "rollback" not in self.calls:
                await asyncio.Event().wait()
            self.loaded(batch)

        async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
            self.calls.append("rollback")
            causes.append(str(cause.__cause__ or cause))

    causes: list[str] = []
    flow = wormhole_kit.attach(loader := Stuck(), handler_timeout=8.0)
    flow.commit(row(1), row(2, table="shop.orders"))
    assert loader.batches == [[1], [1], [2]]
    assert len(causes) == 1
    assert "on_arrow ran longer than handler_timeout = 8 s" in causes[0]
    assert flow.datamarker == flow.end


def test_a_schema_is_announced_before_its_batch(wormhole_kit: Kit) -> None:
    loader = Loader()
    loader.on_schema = lambda change: loader.calls.append(change.update_id)  # type: ignore[method-assign]
    wider = update(TABLE, key={"id": 2}, after={"id": 2, "name": "b", "age": 3})
    wormhole_kit.attach(loader).commit(row(1), wider)
    assert loader.calls == ["test:1:0", "shop.users [1]", "test:1:1", "shop.users [2]", "datamarker"]


def test_the_row_before_is_there_for_who_asks(wormhole_kit: Kit) -> None:
    class Both(Loader):
        arrow_before = True

        def loaded(self, batch: pa.RecordBatch) -> None:
            self.calls += batch.column("_before").to_pylist()

    both = Both()
    change = update(TABLE, key={"id": 1}, before={"id": 1, "name": "a"}, after={"id": 1, "name": "b"})
    wormhole_kit.attach(both).commit(change)
    assert both.calls == [{"id": 1, "name": "a"}, "datamarker"]


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "subscriber_sdk.arrow")
    for name in [one for one in sys.modules if one.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Loader overrides on_arrow.*pip install 'wormhole-pubsub\[arrow\]'"):
        Handlers(Loader())
