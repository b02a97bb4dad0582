"""Translates Spark's filters to conditions on files and rows of an archive.

This module imports PySpark, so other modules import it only when they need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource as spark

from spark_replay.selected import ColumnCondition

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["conditions_of"]

_KINDS: Final[Mapping[str, type]] = {
    "shard": str,
    "table": str,
    "op": str,
    "place": bytes,
    "committed_at": datetime,
}
"""The columns that conditions can be about, with the type of their values."""
_COMPARED: Final[Mapping[type, str]] = {
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}
_TEXTS: Final = ("shard", "table", "op")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def conditions_of(asked: spark.Filter, names: Mapping[str, str]) -> tuple[ColumnCondition, ...] | None:
    """Conditions that are true for exactly the rows for which ``asked`` is true.

    ``None``: there are no such conditions, and Spark has to filter. ``names``: the archive's column by the name in
    ``asked``.
    """
    path: Sequence[str] = getattr(asked, "attribute", ())
    column = names.get(path[0]) if len(path) == 1 else None
    if column is None or column not in _KINDS:
        return None
    match asked:
        case spark.IsNotNull() if column != "committed_at":
            return ()
        case spark.EqualTo(value=value) | spark.EqualNullSafe(value=value):
            return _conditions(column, "in", [value])
        case spark.In(value=value):
            return _conditions(column, "in", [one for one in value if one is not None])
        case _ if type(asked) in _COMPARED and column not in _TEXTS:
            return _conditions(column, _COMPARED[type(asked)], [asked.value])  # type: ignore[attr-defined]
    return None


def _conditions(column: str, compared: str, values: Sequence[Any]) -> tuple[ColumnCondition, ...] | None:
    if not values or not all(isinstance(one, _KINDS[column]) for one in values):
        return None
    if column == "committed_at":
        if any(one.tzinfo is None for one in values):
            return None
        values = [(one - _EPOCH) // timedelta(microseconds=1) for one in values]
    return (ColumnCondition(column, compared, tuple(values)),)
