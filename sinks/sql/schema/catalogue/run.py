"""Helpers that the readers of all catalogues share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sinks.sql.schema.dialect import TableName
from wormhole.model.errors import TargetRefused

__all__ = ["Run", "key_of", "not_a_table"]

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def not_a_table(name: TableName, kind: str) -> TargetRefused:
    """The error for an object that is not a table, such as a view. ``kind``: what the object is."""
    return TargetRefused(
        f"{name} in the target is a {kind}, not a table",
        hint="give the sink another name for the table, or rename what has the name",
    )


def key_of(primary: tuple[str, ...], unique: Iterable[tuple[str, ...]], required: Iterable[str]) -> tuple[str, ...]:
    """The columns of the primary key, or else of the first ``unique`` index that has only ``required`` columns."""
    known = set(required)
    return primary or next((columns for columns in unique if known.issuperset(columns)), ())
