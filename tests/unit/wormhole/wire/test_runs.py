"""Runs of transactions, as they are built and as they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.present import present
from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run
from wormhole.model.values import Op
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.rows import encode_row, entry
from wormhole.wire.runs import RunsBuilder, run_of
from wormhole.wire.update import Batch, Update

# --- runs


USERS = Schema("users", (Column("key", "bytes"),), (Column("value", "bytes"),))
ORDERS = Schema("orders", (Column("key", "bytes"),), (Column("value", "bytes"),))
ROW = encode_row(Op.UPSERT, (b"k",), after=(b"v",))


def place(offset: int) -> LogPosition:
    return LogPosition(1, 2, offset)


def parsed(run: Run) -> ParsedBody:
    body = present(build_body(run, 1))
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


# --- endings


SCHEMA = Schema("t", (Column("id", "int"),), (Column("id", "int"),))


def body(*parts: tuple[int, tuple[int, ...]], unfinished: bool = False, first: int = 0, marks: bool = False) -> bytes:
    """Transactions ``(number, keys)``; the first one's updates are counted from ``first``."""
    updates, ends, index = [], [], []
    for place, (_, keys) in enumerate(parts):
        for i, key in enumerate(keys):
            updates.append(encode_row(Op.INSERT, (key,), after=(key,)))
            index.append(i + (first if place == 0 else 0))
        ends.append(len(updates))
    return ParsedBody(
        updates, (SCHEMA.id,), (), index, 0, ("s",), (), [number for number, _ in parts], 1, [3] * len(parts),
        [100 * number for number, _ in parts], [number for number, _ in parts], ends[:-1] if unfinished else ends,
        [n % 3 for n in range(len(updates))] if marks else (),
    ).to_bytes()  # fmt: skip


def told(data: bytes) -> list[tuple[str, object, bool]]:
    def schema(_: int) -> Schema:
        return SCHEMA

    found: list[Update] = Batch(parse_body(data), "x", 1, False, schema).updates()
    return [(one.id, one.key[0], one.ends_transaction) for one in found]


def test_a_whole_transaction_passes_untouched() -> None:
    data = body((1, (1, 2)))
    assert Endings().pass_on(data, unfinished=False) is data


@pytest.fixture
def endings() -> Endings:
    return Endings()


def test_the_last_update_of_a_piece_comes_with_the_next_one(endings: Endings) -> None:
    first = endings.pass_on(body((1, (1,)), (2, (2, 3)), unfinished=True), unfinished=True)
    assert told(first) == [("s:1:0", 1, True), ("s:2:0", 2, False)]
    second = endings.pass_on(body((2, (4,)), unfinished=True, first=2), unfinished=True)
    assert told(second) == [("s:2:1", 3, False)]
    last = endings.pass_on(body((2, (5,)), (3, (6,)), first=3), unfinished=False)
    assert told(last) == [("s:2:2", 4, False), ("s:2:3", 5, True), ("s:3:0", 6, True)]
    assert endings.release() is None


def test_an_end_without_an_update_is_the_end_of_the_one_before(endings: Endings) -> None:
    first = endings.pass_on(body((2, (7,)), unfinished=True), unfinished=True)
    assert told(first) == []
    assert told(endings.pass_on(body((2, ())), unfinished=False)) == [("s:2:0", 7, True)]


def test_pieces_that_need_no_column_for_each_update_get_none(endings: Endings) -> None:
    for first in (0, 3, 6):
        piece = replace(parse_body(body((2, (1, 2, 3)), unfinished=True)), update_index=(), first_index=first, window=7)
        passed = parse_body(endings.pass_on(piece.to_bytes(), unfinished=True))
        assert not passed.update_index
        assert not passed.schema_index
        assert list(passed.schema_ids) == [SCHEMA.id]
        assert passed.window == 7
        assert [passed.index_of(i) for i in range(len(passed.updates))] == list(range(max(0, first - 1), first + 2))
    end = parse_body(endings.pass_on(body((2, ()), (3, (4, 5))), unfinished=False))
    assert [end.index_of(i) for i in range(3)] == [8, 0, 1]


def test_an_end_behind_the_only_update_that_was_held_back(endings: Endings) -> None:
    endings.pass_on(body((2, (7,)), unfinished=True), unfinished=True)
    assert told(endings.pass_on(body((2, ()), unfinished=True), unfinished=True)) == []
    assert told(endings.pass_on(body((2, (8,)), first=1), unfinished=False)) == [
        ("s:2:0", 7, False),
        ("s:2:1", 8, True),
    ]


def test_a_piece_whose_fields_stand_in_another_order() -> None:
    piece = body((2, (1, 2, 3)), unfinished=True)
    entries = b"".join(entry(update) for update in parse_body(piece).updates)
    columns = piece.removeprefix(entries)
    assert len(columns) == len(piece) - len(entries)
    mixed = columns + entries
    assert told(Endings().pass_on(mixed, unfinished=True)) == told(Endings().pass_on(piece, unfinished=True))


def test_marks_go_with_their_updates(endings: Endings) -> None:
    first = endings.pass_on(body((2, (1, 2, 3)), unfinished=True, marks=True), unfinished=True)
    last = parse_body(endings.pass_on(body((2, (4,)), first=3), unfinished=False))
    assert [parse_body(first).mark_of(i) for i in (0, 1)] == [0, 1]
    assert [last.mark_of(i) for i in (0, 1)] == [2, 0]


def test_what_is_held_back_when_nothing_of_its_transaction_follows(endings: Endings) -> None:
    endings.pass_on(body((2, (1, 2)), unfinished=True), unfinished=True)
    assert told(endings.pass_on(body((3, (4,))), unfinished=False)) == [("s:2:1", 2, True), ("s:3:0", 4, True)]
    endings.pass_on(body((4, (1,)), unfinished=True), unfinished=True)
    released = present(endings.release())
    assert told(released) == [("s:4:0", 1, True)]


def test_bytes_that_are_no_body() -> None:
    with pytest.raises(ProtocolError):
        Endings().pass_on(b"\xff", unfinished=True)
