"""What several changes of one key are combined to, where histories of whole tables do not show it."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_replay.archive.columns import SCHEMA
from spark_replay.combine import combined
from spark_replay.replay import latest
from spark_replay.replay.latest import folded
from tests.unit.spark_replay.replay.test_latest import NEW, OLD, SCHEMAS, Change, rows_of
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, op_of, values_of

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
        ([of(Op.DELETE), of(Op.INSERT, {"a": 1}), of(Op.UPDATE, {"a": 2}), of(Op.UPDATE, {"a": 3})], 3),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.INSERT, {"a": 1}), *[of(Op.UPDATE, {"a": 2})] * 3], 4),
        ([of(Op.UPDATE, WHOLE), of(Op.DELETE), of(Op.INSERT, {"a": 1}), of(Op.UPDATE, WHOLE)], 2),
        ([of(Op.UPDATE, WHOLE), of(Op.INSERT, {"a": 1}), of(Op.INSERT, {"b": 1})], 2),  # delivered twice
        ([of(Op.DELETE), of(Op.UPDATE, {"a": 1}), of(Op.INSERT, {"b": 1})], 2),  # no server writes this
        ([of(Op.DELETE), of(Op.DELETE), of(Op.UPDATE, {"a": 1}), of(Op.UPDATE, {"a": 1})], 2),
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
