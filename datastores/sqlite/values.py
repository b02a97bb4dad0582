"""Converts the values that SQLite stores into values of updates.

A column of SQLite may hold values of any storage class. A value in an update has the storage class of that value. The
schema's type is that of the column's affinity, which SQLite applies when it stores a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from wormhole.model.schema import Schema
from wormhole.model.values import Op, Value
from wormhole.wire.rows import encode_key, encode_row

__all__ = ["RowEncoder", "from_key", "type_of"]

_MOST_DIGITS: Final = 19
_KEY_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "text": (str,),
    "bytes": (bytes,),
    "double": (float,),
    "decimal": (Decimal, str),
}


def type_of(declared: str, strict: bool) -> str:
    """The schema's type for a column's declared type (https://sqlite.org/datatype3.html, section 3.1)."""
    name = declared.upper()
    if "INT" in name:
        return "int"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in name or not name or (strict and name == "ANY"):
        return "bytes"
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return "double"
    if "DATE" in name or "TIME" in name:
        return "text"
    return "int" if "BOOL" in name else "decimal"


def _as_decimal(value: Any) -> Value:
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else repr(value)
    return value  # type: ignore[no-any-return]


def _as_text(value: Any) -> Value:
    return repr(value) if isinstance(value, int | float) else value


_CONVERTED: Final[dict[str, Callable[[Any], Value]]] = {"decimal": _as_decimal, "text": _as_text}


class RowEncoder:
    """Encodes the rows of one table. ``key``: the positions of the key's columns."""

    def __init__(self, schema: Schema, key: Sequence[int], max_update_bytes: int) -> None:
        self.schema = schema
        self._key = key
        self._most = max_update_bytes
        self._convert = [(i, _CONVERTED[c.type]) for i, c in enumerate(schema.columns) if c.type in _CONVERTED]
        self._key_types = [column.type for column in schema.key]

    def values(self, row: Sequence[Any]) -> Sequence[Value]:
        """The values of a row."""
        if not self._convert:
            return row
        values = list(row)
        for i, convert in self._convert:
            values[i] = convert(values[i])
        return values

    def key_of(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """The key, from a row's values."""
        return tuple(values[i] for i in self._key)

    def key(self, stored: Sequence[Any]) -> tuple[Value, ...]:
        """The key, from the key columns as stored."""
        return tuple(
            _CONVERTED[kind](value) if kind in _CONVERTED else value
            for kind, value in zip(self._key_types, stored, strict=True)
        )

    def wrong(self, key: Sequence[Value]) -> str:
        """Why a key cannot be the key of an update; empty: it can be."""
        for column, value in zip(self.schema.key, key, strict=True):
            if value is None:
                return f"{column.name} is NULL"
            if not isinstance(value, _KEY_CLASSES[column.type]):
                return f"{column.name}, which is declared as {column.type}, is {type(value).__name__}"
        return ""

    def row(self, op: Op, key: Sequence[Value], values: Sequence[Value]) -> bytes:
        """An update with the values. An update larger than the limit comes without them."""
        row = encode_row(op, key, after=values)
        return row if len(row) <= self._most else encode_row(op, key, too_large=True)

    def gone(self, key: Sequence[Value]) -> bytes:
        """The delete of a row that no longer exists."""
        return encode_row(Op.DELETE, key)

    def read(self, values: Sequence[Value]) -> tuple[bytes, bytes]:
        """An existing row's key, and its update."""
        key = self.key_of(values)
        return encode_key(key), self.row(Op.READ, key, values)


def from_key(key: Sequence[Value]) -> list[Any]:
    """The values of an update's key in the form that SQLite compares."""
    return [_stored(value) if isinstance(value, Decimal) else value for value in key]


def _stored(value: Decimal) -> int | float:
    whole = value == value.to_integral_value() and value.adjusted() < _MOST_DIGITS
    return int(value) if whole and -(1 << 63) <= value < 1 << 63 else float(value)
