"""The columns of an open table, continued from one run to the next. Pure.

A column keeps its name and its place in the table for ever. New columns are added at the end. A column that the
database no longer has stays, so that queries continue to work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_replay.tables.columns import TableColumn, common_type, parse_type
from wormhole.model.errors import UsageError
from wormhole.model.schema import Column, Schema, free_names
from wormhole.model.values import UNAVAILABLE, Value

__all__ = ["base_schema", "evolved", "row_values"]

_ASKED: Final = "decimal("  # a type that only requests have


def evolved(
    before: Sequence[TableColumn], schemas: Sequence[Schema], types: Mapping[str, str]
) -> tuple[TableColumn, ...]:
    """The columns of a table with the columns ``before`` after rows of ``schemas`` (oldest first) were added.

    ``types``: requested types, by column name. Raises :class:`~wormhole.model.errors.UsageError` for an unknown type,
    and for a column that the table does not have.
    """
    kinds: dict[str, set[str]] = {column.name: {column.type} for column in before}
    for schema in reversed(schemas):
        for column in (*schema.key, *schema.columns):
            kinds.setdefault(column.name, set()).add(column.type)
    if strangers := sorted(types.keys() - kinds.keys()):
        raise UsageError(f"there is no column {', '.join(strangers)}", hint=f"the columns are {', '.join(kinds)}")
    shown = {column.name: column.shown for column in before}
    taken = {name.lower() for name in shown.values()}
    for name, free in free_names(kinds).items():
        while name not in shown and free.lower() in taken:
            free += "_"
        shown.setdefault(name, free)
        taken.add(shown[name].lower())
    return tuple(TableColumn(name, shown[name], _type(name, found, types)) for name, found in kinds.items())


def _type(name: str, found: set[str], types: Mapping[str, str]) -> str:
    if name in types:
        return parse_type(types[name])
    asked = [kind for kind in found if kind.startswith(_ASKED)]
    return asked[0] if asked else common_type(found)


def base_schema(table: str, key: Sequence[Column], columns: Sequence[TableColumn]) -> Schema:
    """The schema of rows that are read from the open table itself."""
    return Schema(table, tuple(key), tuple(Column(column.name, _logged(column.type)) for column in columns))


def _logged(kind: str) -> str:
    return "decimal" if kind.startswith(_ASKED) else kind


def row_values(row: Mapping[str, Any], columns: Sequence[TableColumn]) -> tuple[Value, ...]:
    """The values of a row of the table as the log would have them.

    It is the inverse of the function that :func:`~spark_replay.tables.columns.converter` returns.
    """
    unknown = row["_unavailable"] or ()
    return tuple(
        UNAVAILABLE if column.shown in unknown else _value(row[column.shown], column.type) for column in columns
    )


def _value(cell: Any, kind: str) -> Value:
    if cell is None:
        return None
    if kind == "uint":
        return int(cell)
    if kind == "entries":
        return dict(cell)
    value: Value = cell
    return value
