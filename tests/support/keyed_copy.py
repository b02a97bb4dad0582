"""What an application holds that keeps each row under its key, and does as the updates say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Value
from wormhole.wire.rows import decode_row, values_of
from wormhole.wire.v1 import update_pb2

__all__ = ["KeyedCopy", "Rows", "differences", "rows_of"]

Key = tuple[tuple[str, str], ...]
Rows = dict[Key, dict[str, Value]]
"""By the names and texts of the key's values: values by column."""

_MOST: Final = 3


class KeyedCopy:
    """``tables``: the rows by table."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {}

    def note(self, row: update_pb2.Update, schema: Schema) -> None:
        """An update of the log."""
        rows = self.tables.setdefault(schema.table, {})
        if row.op == update_pb2.TRUNCATE:
            rows.clear()
            return
        key = _key(row, schema)
        before = rows.pop(_key_of(row.old_key, schema) if row.old_key else key, {})
        if row.op != update_pb2.DELETE:
            after = _values(row, schema)
            held = before if row.op == update_pb2.UPDATE else {}
            rows[key] = held | {name: value for name, value in after.items() if value is not UNAVAILABLE}


def rows_of(chunk: Mapping[bytes, bytes], schema: Schema) -> Rows:
    """Rows that a table holds."""
    updates = map(decode_row, chunk.values())
    return {_key(one, schema): _values(one, schema) for one in updates}


def differences(held: Rows, shown: Rows) -> list[str]:
    """Some of what differs. A column that no update named is NULL; one that the table does not have any more counts
    for nothing.
    """
    found = [f"{key} is missing" for key in shown.keys() - held.keys()]
    found += [f"{key} should be gone" for key in held.keys() - shown.keys()]
    for key in shown.keys() & held.keys():
        for name, value in shown[key].items():
            if str(held[key].get(name)) != str(value):
                found.append(f"{key}: {name} is {held[key].get(name)!s:.100}, SELECT shows {value!s:.100}")
    return found[:_MOST]


def _values(row: update_pb2.Update, schema: Schema) -> dict[str, Value]:
    """What the update says of the row: nothing where it was too large."""
    return dict(zip(schema.names, values_of(row.after), strict=True)) if row.after else {}


def _key(row: update_pb2.Update, schema: Schema) -> Key:
    return _key_of(row.key, schema)


def _key_of(values: object, schema: Schema) -> Key:
    return tuple(
        (column.name, str(value))
        for column, value in zip(schema.key, values_of(values), strict=True)  # type: ignore[arg-type]
    )
