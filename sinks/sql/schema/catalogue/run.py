"""What every catalogue needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sinks.sql.schema.dialect import TableName
from wormhole.model.errors import TargetRefused

__all__ = ["Run", "key_of", "not_a_table"]

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def not_a_table(name: TableName, kind: str) -> TargetRefused:
    """The error for a name of something that cannot be written as a table."""
    return TargetRefused(
        f"{name} in the target is a {kind}, not a table",
        hint="give the sink another name for the table, or rename what has the name",
    )


def key_of(primary: tuple[str, ...], unique: Iterable[tuple[str, ...]], required: Iterable[str]) -> tuple[str, ...]:
    """The primary key, or else the first of the ``unique`` indexes that has only ``required`` columns."""
    known = set(required)
    return primary or next((columns for columns in unique if known.issuperset(columns)), ())
