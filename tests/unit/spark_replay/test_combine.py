"""What several changes of one key are combined to, and how images fold."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_replay import submit
from spark_replay.archive.columns import SCHEMA
from spark_replay.combine import combined
from spark_replay.images import RowImage, encoded, fold, read_row
from spark_replay.replay import latest
from spark_replay.replay.latest import folded
from tests.unit.spark_replay.replay.test_latest import NEW, OLD, SCHEMAS, Change, rows_of
from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, decode_row, encode_row, op_of, values_of

# --- combine ---


WHOLE = {"a": 1, "b": 1}


def net(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    with patch.object(latest, "combined", lambda rows, _: rows):
        found = [row for some in folded(rows, SCHEMAS) for row in some.to_pylist()]
    rows_by_place = sorted(found, key=lambda row: row["place"])
    return [
        (row["place"], op_of(update), values_of(update.after), values_of(update.before), row["partial"])
        for row in rows_by_place
        for update in [decode_row(row["update"])]
    ]


def without(rows: pa.RecordBatch, at: int, column: int) -> pa.RecordBatch:
    """The same, where a change says of a column that it is another and not which."""
    found = rows.to_pylist()
    update = decode_row(found[at]["update"])
    update.after[column].Clear()
    found[at]["update"] = update.SerializeToString()
    return pa.RecordBatch.from_pylist(found, SCHEMA)


def of(op: Op, after: Mapping[str, Value] | None = None, schema: object = OLD) -> Change:
    return Change(op, 1, after, schema=NEW if schema is NEW else OLD)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ([of(Op.UPSERT, WHOLE)] * 5, 1),
        ([of(Op.UPDATE, {"a": at}) for at in range(9)], 2),
        ([of(Op.DELETE), of(Op.INSERT, {"a": 1}), of(Op.UPDATE, {"a": 2}), of(Op.UPDATE, {"a": 3})], 2),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.INSERT, {"a": 1}), *[of(Op.UPDATE, {"a": 2})] * 3], 3),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.INSERT, {"a": 1}), of(Op.UPDATE, WHOLE)], 3),
        ([of(Op.UPDATE, WHOLE), of(Op.INSERT, {"a": 1}), of(Op.INSERT, {"b": 1})], 2),  # delivered twice
        ([of(Op.DELETE), of(Op.UPDATE, {"a": 1}), of(Op.INSERT, {"b": 1})], 2),  # no server writes this
        ([of(Op.DELETE), of(Op.DELETE), of(Op.UPDATE, {"a": 1}), of(Op.UPDATE, {"a": 1})], 3),
        ([of(Op.UPSERT, WHOLE), of(Op.DELETE), of(Op.UPSERT, WHOLE)], 1),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.INSERT, WHOLE), of(Op.UPDATE, {"a": 2}, NEW)], 3),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.READ, {"a": 2})], 3),
        ([of(Op.INSERT, WHOLE), of(Op.DELETE), of(Op.INSERT, WHOLE), of(Op.DELETE)], 2),
        ([of(Op.UPDATE, WHOLE), of(Op.READ, {"a": 2}), of(Op.UPDATE, {"a": 3})], 2),
        ([of(Op.UPDATE, WHOLE), of(Op.UPDATE, {"a": 2}), of(Op.READ, {"b": 3})], 2),
        (
            [of(Op.UPDATE, WHOLE), of(Op.UPDATE, {"c": 7}, NEW), of(Op.UPDATE, {"a": 3}), of(Op.UPDATE, {"b": 3}, NEW)],
            2,
        ),
        ([of(Op.UPDATE, {**WHOLE, "c": 7}, NEW), of(Op.UPDATE, {"a": 3}), of(Op.UPDATE, {"b": 3}, NEW)], 2),
        ([of(Op.UPDATE, WHOLE), of(Op.UPDATE, {}), of(Op.UPDATE, {"a": 3})], 2),
    ],
)
def test_what_is_left_says_the_same(changes: list[Change], left: int) -> None:
    rows = rows_of(changes)
    found = combined(rows, SCHEMAS)
    assert found.num_rows == left
    assert net(found) == net(rows)
    assert found.schema == rows.schema
    if left > 1:
        halves = [rows.slice(0, len(changes) // 2), rows.slice(len(changes) // 2)]
        again = pa.Table.from_batches([combined(half, SCHEMAS) for half in halves if half.num_rows])
        (joined,) = again.unify_dictionaries().combine_chunks().to_batches()
        assert net(combined(joined, SCHEMAS)) == net(rows)


def test_a_value_that_a_change_does_not_know_is_not_known_afterwards() -> None:
    changes = [of(Op.UPDATE, WHOLE), *(of(Op.UPDATE, {"a": at, "b": 2}) for at in range(3)), of(Op.UPDATE, {"a": 9})]
    rows = without(rows_of(changes), 3, 1)
    found = combined(rows, SCHEMAS)
    assert found.num_rows == 2
    assert found.column("partial").to_pylist() == [False, True]
    assert net(found) == net(rows)
    assert [after for _, _, after, _, _ in net(found)] == [(9, UNAVAILABLE)]


# --- images: folding: absent never erases, and what a whole write lacks is unknown ---


ID = Column("id", "int")
TABLE = Schema("t", (ID,), (ID, Column("name", "text"), Column("note", "text")))
STORE = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))


def row(op: Op, key: Value, *after: Value, too_large: bool = False) -> Row:
    return decode_row(encode_row(op, (key,), after=after, too_large=too_large))


def image(*values: Value) -> RowImage:
    return fold(None, TABLE, row(Op.READ, values[0], *values))


WIDER = Schema("t", (ID,), (Column("note", "text"), ID, Column("city", "text")))
UNKNOWN = row(Op.UPDATE, 1, 1, UNAVAILABLE, UNAVAILABLE)
UNKNOWN.after[2].ClearField("unavailable")  # PARTIAL_JSON without the document before


@pytest.mark.parametrize(
    ("change", "schema", "values"),
    [
        (row(Op.UPDATE, 1, 1, None, UNAVAILABLE), TABLE, (1, None, "old")),
        (row(Op.INSERT, 1, 1, UNAVAILABLE, "new"), TABLE, (1, UNAVAILABLE, "new")),
        (row(Op.UPSERT, 1, 1, UNAVAILABLE, "new"), TABLE, (1, UNAVAILABLE, "new")),
        (row(Op.UPDATE, 1, too_large=True), TABLE, (1, UNAVAILABLE, UNAVAILABLE)),
        (UNKNOWN, TABLE, (1, "ann", UNAVAILABLE)),
        # Columns are found by name where the table changed.
        (row(Op.UPDATE, 1, UNAVAILABLE, 1, UNAVAILABLE), WIDER, ("old", 1, UNAVAILABLE)),
    ],
)
def test_absent_keeps_the_old_value_and_unknown_does_not(
    change: Row, schema: Schema, values: tuple[Value, ...]
) -> None:
    assert values_of(fold(image(1, "ann", "old"), schema, change).values) == values


def test_a_delete_leaves_nothing_but_the_key() -> None:
    gone = fold(image(1, "ann", "old"), TABLE, row(Op.DELETE, 1))
    found = fold(gone, TABLE, row(Op.UPDATE, 1, UNAVAILABLE, "bob", UNAVAILABLE))
    assert values_of(found.values) == (1, "bob", UNAVAILABLE)


def test_the_operand_of_a_merge_is_not_the_result() -> None:
    found = fold(fold(None, STORE, row(Op.UPSERT, b"k", b"base")), STORE, row(Op.MERGE, b"k", b"+1"))
    assert (values_of(found.values), found.complete) == ((UNAVAILABLE,), False)


@pytest.mark.parametrize("later", [(None, UNAVAILABLE), (UNAVAILABLE, "c"), (UNAVAILABLE, UNAVAILABLE)])
@pytest.mark.parametrize("op", [Op.UPDATE, Op.INSERT, Op.DELETE, Op.MERGE])
def test_changes_that_were_folded_before_their_base_is_known_come_to_the_same(op: Op, later: tuple[Value, ...]) -> None:
    base, change, last = image(1, "ann", "old"), row(op, 1, 1, UNAVAILABLE, "b"), row(Op.UPDATE, 1, UNAVAILABLE, *later)
    both = read_row(encoded(fold(fold(None, TABLE, change), TABLE, last), Op.UPDATE, last=False))
    one_by_one = fold(fold(base, TABLE, change), TABLE, last)
    assert values_of(fold(base, TABLE, both).values) == values_of(one_by_one.values)


def test_an_image_becomes_update_bytes_again() -> None:
    back = decode_row(encoded(image(1, None, UNAVAILABLE), Op.INSERT))
    assert values_of(back.after) == (1, None, UNAVAILABLE)
    assert values_of(back.key) == (1,)


def test_bytes_that_are_no_row_are_reported() -> None:
    with pytest.raises(ArchiveError, match="no valid row"):
        read_row(b"\xff\xff")


# --- submit ---


def test_the_arguments_are_those_of_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["submit.py", "--resume", "r", "--cancel", "r"])
    with pytest.raises(SystemExit) as ended:
        submit.main()
    assert ended.value.code == 2
    assert "exclude each other" in capsys.readouterr().err
