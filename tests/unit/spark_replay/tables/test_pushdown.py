"""What Spark asks, as what files and rows are asked: exactly that, or it is Spark's to ask."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource as spark

from spark_replay.selected import ColumnCondition
from spark_replay.tables.pushdown import conditions_of

NAMES = {name: name for name in ("shard", "table", "op", "place", "committed_at", "key")}
NOON = datetime(2026, 1, 1, 12, 0, 0, 7, tzinfo=UTC)
NOON_US = 1_767_268_800_000_007


@pytest.mark.parametrize(
    ("asked", "conditions"),
    [
        (spark.EqualTo(("shard",), "a"), (ColumnCondition("shard", "in", ("a",)),)),
        (spark.EqualNullSafe(("table",), "t"), (ColumnCondition("table", "in", ("t",)),)),
        (spark.In(("op",), ("insert", None, "read")), (ColumnCondition("op", "in", ("insert", "read")),)),
        (spark.IsNotNull(("place",)), ()),
        (spark.LessThan(("place",), b"\1"), (ColumnCondition("place", "<", (b"\1",)),)),
        (spark.LessThanOrEqual(("place",), b"\1"), (ColumnCondition("place", "<=", (b"\1",)),)),
        (spark.GreaterThan(("committed_at",), NOON), (ColumnCondition("committed_at", ">", (NOON_US,)),)),
        (spark.GreaterThanOrEqual(("committed_at",), NOON), (ColumnCondition("committed_at", ">=", (NOON_US,)),)),
        (spark.EqualTo(("committed_at",), NOON), (ColumnCondition("committed_at", "in", (NOON_US,)),)),
        # These stay with Spark.
        (spark.IsNotNull(("committed_at",)), None),
        (spark.IsNull(("shard",)), None),
        (spark.EqualTo(("key",), b"k"), None),
        (spark.EqualTo(("other",), "x"), None),
        (spark.EqualTo(("shard", "field"), "x"), None),
        (spark.EqualNullSafe(("shard",), None), None),
        (spark.In(("shard",), (None,)), None),
        (spark.GreaterThan(("shard",), "a"), None),
        (spark.GreaterThan(("committed_at",), NOON.replace(tzinfo=None)), None),
        (spark.Not(spark.EqualTo(("shard",), "a")), None),
        (spark.StringStartsWith(("table",), "shop."), None),
    ],
)
def test_what_is_asked(asked: spark.Filter, conditions: tuple[ColumnCondition, ...] | None) -> None:
    assert conditions_of(asked, NAMES) == conditions


def test_columns_of_a_table_are_asked_by_the_names_that_they_have_there() -> None:
    assert conditions_of(spark.EqualTo(("_op",), "insert"), {"_op": "op"}) == (
        ColumnCondition("op", "in", ("insert",)),
    )
    assert conditions_of(spark.EqualTo(("op",), "insert"), {"_op": "op"}) is None
