"""What `latest` makes of a range, held against a subscriber that received every change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.archive.columns import SCHEMA, place_bytes
from spark_replay.archive.reader import segments_of
from spark_replay.replay import latest as module
from spark_replay.replay.latest import folded, net_op
from wormhole.filters import Filter
from wormhole.model.errors import ReplayError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row, op_of, values_of
from wormhole.wire.v1 import update_pb2

OLD = Schema("t", (Column("id", "int"),), (Column("a", "int"), Column("b", "int")))
NEW = Schema("t", (Column("id", "int"),), (Column("c", "int"), Column("a", "int"), Column("b", "int")))
KEYLESS = Schema("keyless", (), OLD.columns)
SCHEMAS = {schema.id: schema for schema in (OLD, NEW, KEYLESS)}
WHERE = Filter.parse("a >= 5")
START = LogPosition(1, 1, 0)

Row = dict[str, Value]
State = dict[int, Row]


@dataclass(frozen=True)
class Change:
    """One change of key ``id``; values that are left out are not in the log."""

    op: Op
    id: int
    after: Mapping[str, Value] | None = None
    before: Mapping[str, Value] | None = None
    schema: Schema = OLD

    @property
    def update(self) -> bytes:
        def values(given: Mapping[str, Value] | None) -> Sequence[Value]:
            return () if given is None else [given.get(column.name, UNAVAILABLE) for column in self.schema.columns]

        key = (self.id,) if self.schema.key else ()
        return encode_row(self.op, key, after=values(self.after), before=values(self.before))

    @property
    def partial(self) -> bool:
        return self.after is not None and len(self.after) < len(self.schema.columns)


def rows_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """As a file has them: by place."""
    rows = [
        {
            "place": place_bytes(LogPosition(1, 1, at + 1), False, 0),
            "tx_source": "s",
            "tx_number": at,
            "tx_index": 0,
            "ends_tx": True,
            "committed_at": None,
            "op": change.op.value,
            "table": change.schema.table,
            "key": bytes([change.id]) if change.schema.key else b"",
            "old_key": None,
            "schema_id": change.schema.id - ((change.schema.id >> 63) << 64),
            "partial": change.partial,
            "update": change.update,
        }
        for at, change in enumerate(changes)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def latest(changes: Sequence[Change], *, by_values: bool = False) -> list[dict[str, Any]]:
    """The rows per key, by place, of every change one by one: nothing is combined before."""
    with patch.object(module, "combined", lambda rows, _: rows):
        found = [row for batch in folded(rows_of(changes), SCHEMAS, by_values=by_values) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["place"])


def received(state: State, op: Op, id_: int, after: Mapping[str, Value] | None) -> None:
    """A subscriber's table after an update: an UPDATE leaves as it is what it lacks, all others say what the row is."""
    if op is Op.DELETE:
        state.pop(id_, None)
        return
    assert after is not None
    base = state.get(id_, {}) if op is Op.UPDATE else {}
    state[id_] = {**base, **{name: value for name, value in after.items() if value is not UNAVAILABLE}}


def take(state: State, updates: Iterator[tuple[bytes, Schema]] | Sequence[tuple[bytes, Schema]]) -> State:
    for update, schema in updates:
        row = decode_row(update)
        names = [column.name for column in schema.columns]
        after = dict(zip(names, values_of(row.after), strict=True)) if row.after else None
        (id_,) = values_of(row.key)
        assert isinstance(id_, int)
        received(state, op_of(row), id_, after)
    return state


def schema_of(row: Mapping[str, Any]) -> Schema:
    return SCHEMAS[row["schema_id"] % (1 << 64)]


def copied(state: State) -> State:
    return {id_: dict(row) for id_, row in state.items()}


@st.composite
def histories(draw: st.DrawFn, *, partial: bool = True, alters: int = 1, keys: int = 3) -> tuple[State, list[Change]]:
    """A table as a range begins, and changes that a server could log. ``alters``: how often a column is added or
    dropped, at most."""
    number = st.integers(0, 9)
    some_key = st.integers(0, keys - 1)
    state: State = {id_: {"a": draw(number), "b": draw(number)} for id_ in draw(st.sets(some_key))}
    begin, changes = copied(state), []
    altered = draw(st.sets(st.integers(0, 11), max_size=alters))
    for at in range(draw(st.integers(1, 12))):
        schema = (OLD, NEW)[sum(one <= at for one in altered) % 2]
        names = [column.name for column in schema.columns]
        id_ = draw(some_key)
        before = dict(state[id_]) if id_ in state else None
        op = Op.INSERT if before is None else draw(st.sampled_from([Op.UPDATE, Op.UPDATE, Op.DELETE]))
        after: Row | None = None
        if op is not Op.DELETE:
            given_names = draw(st.sets(st.sampled_from(names), min_size=1)) if partial else set(names)
            after = {name: draw(number) for name in given_names}
        changes.append(Change(op, id_, after, before, schema))
        received(state, op, id_, after)
    return begin, changes


@st.composite
def with_keyless(draw: st.DrawFn) -> list[Change]:
    """A history with changes of a table without a key between its own, many of them equal."""
    _, changes = draw(histories(keys=2))
    for at in draw(st.lists(st.integers(0, 12), min_size=1, max_size=8)):
        changes.insert(at, Change(Op.INSERT, 0, {"a": 1, "b": draw(st.integers(0, 1))}, schema=KEYLESS))
    if draw(st.booleans()):
        changes.append(Change(Op.UPDATE, 0, {"a": 2}, {"a": 1, "b": 0}, KEYLESS))
    return changes


@st.composite
def puts(draw: st.DrawFn) -> list[Change]:
    """What a log holds that knows no rows before changes."""
    return [
        Change(Op.UPSERT, draw(st.integers(0, 2)), {"a": draw(st.integers(0, 9)), "b": 0})
        if draw(st.booleans())
        else Change(Op.DELETE, draw(st.integers(0, 2)))
        for _ in range(draw(st.integers(1, 12)))
    ]


@given(histories(), st.integers(0, 12))
def test_a_subscriber_comes_to_the_same_state_as_by_every_change(
    history: tuple[State, list[Change]], seen: int
) -> None:
    """Also one that had received more than its datamarker says: the first ``seen`` changes."""
    begin, changes = history
    every = [(change.update, change.schema) for change in changes]
    ahead = take(copied(begin), every[:seen])
    expected = take(copied(ahead), every)
    assert take(ahead, [(row["update"], schema_of(row)) for row in latest(changes)]) == expected


@given(histories(partial=False, alters=0))
def test_of_whole_rows_there_is_one_per_key_with_the_net_change(history: tuple[State, list[Change]]) -> None:
    begin, changes = history
    end = take(copied(begin), [(change.update, change.schema) for change in changes])
    found = latest(changes)
    assert len(found) == len({change.id for change in changes})
    for row in found:
        decoded = decode_row(row["update"])
        (id_,) = values_of(decoded.key)
        assert isinstance(id_, int)
        mine = [change for change in changes if change.id == id_]
        assert op_of(decoded).value == row["op"] == net_op(mine[0].op.value, mine[-1].op.value)
        assert row["op"] == (
            "delete" if id_ not in end else "update" if id_ in begin or mine[0].op is not Op.INSERT else "insert"
        )
        assert row["tx_number"] == max(at for at, change in enumerate(changes) if change.id == id_)
        assert values_of(decoded.before) == (tuple(begin[id_].values()) if id_ in begin else ())
        assert not row["partial"]


@given(puts())
def test_where_the_log_knows_no_rows_before_the_last_bytes_are_kept(changes: list[Change]) -> None:
    last = {change.id: change.update for change in changes}
    for by_values in (False, True):
        assert {row["update"] for row in latest(changes, by_values=by_values)} == set(last.values())


@given(with_keyless(), st.booleans())
def test_rows_of_a_table_without_a_key_are_not_folded_and_others_are(changes: list[Change], by_values: bool) -> None:
    found = latest(changes, by_values=by_values)
    keyless = [(row["tx_number"], row["update"]) for row in found if schema_of(row) is KEYLESS]
    assert keyless == [(at, one.update) for at, one in enumerate(changes) if one.schema is KEYLESS]
    others = latest([one for one in changes if one.schema is not KEYLESS], by_values=by_values)
    assert [row["update"] for row in found if schema_of(row) is not KEYLESS] == [row["update"] for row in others]


@given(histories())
def test_a_key_that_changed_once_keeps_its_bytes(history: tuple[State, list[Change]]) -> None:
    _, changes = history
    once = {change.update for change in changes if sum(each.id == change.id for each in changes) == 1}
    assert once <= {row["update"] for row in latest(changes)}


def delivered(state: State, changes: Sequence[Mapping[str, Any]]) -> State:
    """What a subscriber with the filter makes of rows, as a replay pushes them."""
    names = [field.name for field in SCHEMA]
    batch = pa.RecordBatch.from_pylist([{name: row[name] for name in names} for row in changes], rows_of([]).schema)
    for segment in segments_of(
        [batch] if batch.num_rows else [], shard="x", schema_of=lambda id_: SCHEMAS[id_], begin=START, whole=True
    ):
        chosen = WHERE.select(segment.runs["x"])
        for at in range(batch.num_rows) if chosen.kept is None else chosen.kept:
            update, schema = changes[at]["update"], schema_of(changes[at])
            if chosen.marks.get(at) == update_pb2.LEFT:
                state.pop(changes[at]["key"][0], None)
            else:
                take(state, [(update, schema)])
    return state


@given(histories(partial=False, alters=0, keys=1), st.integers(0, 4))
def test_by_values_a_row_that_passed_in_between_only_is_let_go(history: tuple[State, list[Change]], seen: int) -> None:
    begin, changes = history
    every = sorted(rows_of(changes).to_pylist(), key=lambda row: row["place"])
    mine = {id_: row for id_, row in begin.items() if row["a"] >= 5}  # type: ignore[operator]
    ahead = delivered(copied(mine), every[:seen])
    expected = delivered(copied(ahead), every)
    assert delivered(ahead, latest(changes, by_values=True)) == expected


@pytest.mark.parametrize("existed", [False, True])
def test_a_row_that_passed_in_the_middle_reaches_the_filter_as_one_that_may_have_passed(existed: bool) -> None:
    low: Row = {"a": 1, "b": 0}
    high: Row = {"a": 9, "b": 0}
    first = Change(Op.UPDATE, 1, high, low) if existed else Change(Op.INSERT, 1, high)
    (row,) = latest([first, Change(Op.UPDATE, 1, low, high)], by_values=True)
    assert (row["op"], list(decode_row(row["update"]).before)) == ("upsert", [])
    assert delivered({1: high}, [row]) == {}


def test_a_partial_insert_after_a_delete_stays_beside_it() -> None:
    changes = [Change(Op.DELETE, 1), Change(Op.INSERT, 1, {"a": 1}), Change(Op.UPDATE, 1, {"a": 2})]
    delete, insert = latest(changes)
    assert (delete["op"], delete["tx_number"]) == ("delete", 0)
    assert (insert["op"], insert["tx_number"], insert["partial"]) == ("insert", 2, True)
    assert values_of(decode_row(insert["update"]).after) == (2, UNAVAILABLE)
    # Once the row is whole again, one row says it all.
    (row,) = latest([*changes, Change(Op.UPDATE, 1, {"b": 3})])
    assert (row["op"], row["partial"]) == ("update", False)
    assert values_of(decode_row(row["update"]).after) == (2, 3)


DROPPED = [Change(Op.UPDATE, 1, {"c": 1, "a": 1, "b": 1}, schema=NEW), Change(Op.DELETE, 1)]
"""What became of a row with a column that is dropped then, and added again below."""


@pytest.mark.parametrize(
    "changes",
    [
        [Change(Op.INSERT, 1, {"a": 2}), Change(Op.UPDATE, 1, {"b": 2})],
        [Change(Op.INSERT, 1, {"a": 2}), Change(Op.UPDATE, 1, {"a": 2, "b": 2})],
        [Change(Op.INSERT, 1, {"a": 2, "b": 2})],
        [Change(Op.INSERT, 1, {"a": 2, "b": 2}), Change(Op.DELETE, 1), Change(Op.INSERT, 1, {"a": 2, "b": 2})],
    ],
)
def test_a_row_that_was_whole_until_its_table_got_a_column_does_not_keep_what_a_delete_removed(
    changes: list[Change],
) -> None:
    every = [*DROPPED, *changes, Change(Op.UPDATE, 1, {"a": 3}, {"a": 2, "b": 2}, NEW)]
    delete, insert = latest(every)
    assert (delete["op"], insert["op"], insert["partial"]) == ("delete", "insert", True)
    assert values_of(decode_row(insert["update"]).after) == (UNAVAILABLE, 3, 2)
    assert not decode_row(insert["update"]).before
    held: State = {1: {"c": 1, "a": 1, "b": 1}}
    assert take(copied(held), [(one.update, one.schema) for one in every]) == {1: {"a": 3, "b": 2}}
    assert take(held, [(row["update"], schema_of(row)) for row in (delete, insert)]) == {1: {"a": 3, "b": 2}}


def test_rows_before_are_left_out_where_their_columns_were_others() -> None:
    first = Change(Op.UPDATE, 1, {"a": 2, "b": 2}, {"a": 1, "b": 1})
    last = Change(Op.UPDATE, 1, {"a": 3, "b": 3, "c": 3}, {"a": 2, "b": 2, "c": 0}, NEW)
    (row,) = latest([first, last])
    assert not decode_row(row["update"]).before
    assert schema_of(row) is NEW


@pytest.mark.parametrize("op", [Op.MERGE, Op.TRUNCATE, Op.DELETE_RANGE])
def test_what_no_row_per_key_can_stand_for_is_refused(op: Op) -> None:
    with pytest.raises(ReplayError, match=f"holds {op.value}") as caught:
        latest([Change(Op.INSERT, 1, {"a": 1, "b": 1}), Change(op, 1)])
    assert "archive verify" in str(caught.value.hint)
