"""``on_arrow`` in a flow: the guarantees are those of the other callbacks."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from subscriber_sdk import BatchInfo, Datamarker, HandlerFailed, Subscriber, Update, UsageError
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.testing import Kit, read, update

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


def test_two_forms_of_a_handler_are_one_too_many() -> None:
    class Both(Loader):
        async def on_update(self, update: Update) -> None: ...

    with pytest.raises(TypeError, match="Both overrides both on_update and on_arrow"):
        Handlers(Both())


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "subscriber_sdk.arrow")
    for name in [one for one in sys.modules if one.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Loader overrides on_arrow.*pip install 'wormhole-pubsub\[arrow\]'"):
        Handlers(Loader())
