from __future__ import annotations

import pytest

from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run
from wormhole.model.values import Op
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder, run_of

USERS = Schema("users", (Column("key", "bytes"),), (Column("value", "bytes"),))
ORDERS = Schema("orders", (Column("key", "bytes"),), (Column("value", "bytes"),))
ROW = encode_row(Op.UPSERT, (b"k",), after=(b"v",))


def place(offset: int) -> LogPosition:
    return LogPosition(1, 2, offset)


def parsed(run: Run) -> ParsedBody:
    body = build_body(run, 1)
    assert body is not None
    return parse_body(body.data)


@pytest.fixture
def builder() -> RunsBuilder:
    return RunsBuilder()


def test_a_plain_transaction_needs_no_indexes(builder: RunsBuilder) -> None:
    builder.begin("s", 7, 1000, place(0))
    builder.add(["x"], USERS, ROW)
    builder.add(["x"], ORDERS, ROW)
    assert builder.size > 0
    builder.end(place(10))
    run = builder.take()["x"]
    assert builder.size == 0
    assert not run.indexes
    assert run.first_index == 0
    body = parsed(run)
    assert [body.index_of(i) for i in range(2)] == [0, 1]
    assert body.schema_id_of(1) == ORDERS.id
    assert body.transaction_id(0) == "s:7"
    assert body.position_of(0) == place(10)
    assert body.committed_at_us(0) == 1000
    assert list(body.tx_end) == [2]


def test_a_cut_transaction_goes_on_and_its_end_reaches_every_shard(builder: RunsBuilder) -> None:
    builder.begin("s", 7, 1000, place(5))
    builder.add(["x"], USERS, ROW)
    builder.add(["y"], USERS, ROW)
    first = builder.take()
    assert parsed(first["x"]).position_of(0) == place(5)
    assert not first["x"].tx_end
    builder.add(["y"], USERS, ROW)
    builder.end(place(10))
    builder.begin("s", 8, 2000, place(10))
    builder.add(["x", "y"], USERS, ROW)
    builder.end(place(20))
    second = builder.take()
    x, y = parsed(second["x"]), parsed(second["y"])
    assert list(x.tx_end) == [0, 1]
    assert x.index_of(0) == 0
    assert [y.index_of(i) for i in range(2)] == [2, 0]
    assert list(y.tx_end) == [1, 2]
    assert y.position_of(0) == place(10)


def test_indexes_count_over_all_shards(builder: RunsBuilder) -> None:
    builder.begin("s", 1, 0, place(0))
    for shard in "xyxyx":
        builder.add([shard], USERS, ROW)
    builder.end(place(1))
    runs = builder.take()
    assert [parsed(runs["x"]).index_of(i) for i in range(3)] == [0, 2, 4]
    assert [parsed(runs["y"]).index_of(i) for i in range(2)] == [1, 3]


def test_an_end_without_updates_is_a_body_of_its_own(builder: RunsBuilder) -> None:
    builder.begin("s", 1, 0, place(0))
    builder.add(["x"], USERS, ROW)
    builder.take()
    builder.end(place(1))
    body = parsed(builder.take()["x"])
    assert not body.updates
    assert list(body.tx_end) == [0]


def test_sources_are_listed_where_there_are_several(builder: RunsBuilder) -> None:
    for n, source in enumerate("aba"):
        builder.begin(source, n, 0, place(n))
        builder.add(["x"], USERS, ROW)
        builder.end(place(n + 1))
    body = parsed(builder.take()["x"])
    assert [body.transaction_id(t) for t in range(3)] == ["a:0", "b:1", "a:2"]


def test_calls_out_of_order_are_refused(builder: RunsBuilder) -> None:
    with pytest.raises(ValueError, match="no transaction"):
        builder.add(["x"], USERS, ROW)
    with pytest.raises(ValueError, match="no transaction"):
        builder.end(place(1))
    builder.begin("s", 1, 0, place(0))
    with pytest.raises(ValueError, match="has not ended"):
        builder.begin("s", 2, 0, place(0))


def test_a_run_of_one_transaction_is_what_the_builder_makes() -> None:
    rows = [encode_row(Op.READ, (b"k",), after=(bytes(size),)) for size in (0, 1, 100, 120, 200, 20_000, 3)]
    builder = RunsBuilder()
    builder.begin("read:3", 9, 0, place(4))
    for shard, some in (("x", rows[:5]), ("y", rows[5:])):
        for row in some:
            builder.add([shard], USERS, row)
    builder.end(place(4))
    assert builder.take() == {
        "x": run_of(rows[:5], USERS, "read:3", 9, place(4)),
        "y": run_of(rows[5:], USERS, "read:3", 9, place(4), 5),
    }
