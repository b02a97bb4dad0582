"""The columns of a table in Parquet, from all schemas that the table ever had. Pure.

A column keeps its name in all schemas. If its type changed, the column has one type that represents every value
exactly:

======================================  =============================================================
types in the log                        in Parquet
======================================  =============================================================
``int``                                 ``int64``
``uint``, or ``int`` and ``uint``       ``decimal(20, 0)``
``decimal``, or one and integers        text, exact to the last digit; ``decimal(p, s)`` where asked for
``double``, ``bool``, ``text``          ``double``, ``bool``, text
``bytes``, or ``bytes`` and others      binary; text and numbers as UTF-8
``entries``                             map of binary to binary
any other combination                   text
======================================  =============================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from wormhole.model.errors import UsageError
from wormhole.model.schema import Schema, free_names
from wormhole.model.values import UNAVAILABLE, Value

__all__ = ["TableColumn", "arrow_type", "common_type", "converter", "parse_type", "unite"]

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "bytes": pa.binary(),
    "text": pa.string(),
    "int": pa.int64(),
    "uint": pa.decimal128(20, 0),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "decimal": pa.string(),
    "entries": pa.map_(pa.binary(), pa.binary()),
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_INTEGERS: Final = frozenset({"int", "uint"})


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``name``: its name in the table. ``shown``: the name in Parquet. ``type``: listed above, or ``decimal(p,s)``."""

    name: str
    shown: str
    type: str


def unite(
    schemas: Sequence[Schema], types: Mapping[str, str] | None = None, *, only: Collection[Schema] = ()
) -> tuple[TableColumn, ...]:
    """The columns of one table: those of the newest schema in its order, then former ones.

    ``schemas``: oldest first. ``types``: requested types by column name. ``only``: columns that none of these schemas
    has are left out. Raises :class:`~wormhole.model.errors.UsageError` for an unknown type, and for a column that the
    table does not have.
    """
    kept = {column.name for schema in only for column in (*schema.key, *schema.columns)}
    found: dict[str, set[str]] = {}
    for schema in reversed(schemas):
        for column in (*schema.key, *schema.columns):
            if not only or column.name in kept:
                found.setdefault(column.name, set()).add(column.type)
    wanted = dict(types or {})
    if strangers := sorted(wanted.keys() - found.keys()):
        raise UsageError(
            f"there is no column {', '.join(strangers)}", hint=f"the columns are {', '.join(found) or 'not known yet'}"
        )
    shown = free_names(found)
    return tuple(
        TableColumn(name, shown[name], parse_type(wanted[name]) if name in wanted else common_type(kinds))
        for name, kinds in found.items()
    )


def common_type(kinds: Set[str]) -> str:
    """The type that represents every value of all these types exactly."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= _INTEGERS:
        return "uint"
    if kinds <= _INTEGERS | {"decimal"}:
        return "decimal"
    return "bytes" if "bytes" in kinds else "text"


def parse_type(text: str) -> str:
    """The name of a type. Raises :class:`~wormhole.model.errors.UsageError`, with the known types, for another text."""
    if text in _ARROW:
        return text
    match = _DECIMAL.fullmatch(text)
    if match and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return f"decimal({match[1]},{match[2]})"
    raise UsageError(f"{text!r} is no type", hint=f"write {', '.join(_ARROW)}, or decimal(p,s) with at most 38 digits")


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a type's name."""
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _ARROW[kind]


def converter(kind: str) -> Callable[[Value], Any]:
    """A function that converts values of the log to the type. NULL and unavailable values become ``None``.

    It raises ``ValueError``, with a short text, for a value that the type cannot represent exactly. No value is
    rounded.
    """
    match kind:
        case "bytes":
            return _to_bytes
        case "text" | "decimal":
            return _to_text
        case "uint":
            return _to_integer_decimal
        case "entries":
            return _to_entries
        case "int" | "double" | "bool":
            return _exactly({"int": int, "double": float, "bool": bool}[kind])
    match = _DECIMAL.fullmatch(kind)
    assert match is not None
    return _to_decimal(int(match[1]), int(match[2]))


def _to_text(value: Value) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or value is UNAVAILABLE:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else str(value)
    if isinstance(value, bytes):
        return value.decode()  # UnicodeDecodeError is a ValueError
    return repr(value)


def _to_bytes(value: Value) -> bytes | None:
    if isinstance(value, bytes):
        return value
    text = _to_text(value)
    return None if text is None else text.encode()


def _to_integer_decimal(value: Value) -> Decimal | None:
    if value is None or value is UNAVAILABLE:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    raise ValueError(f"{_shown(value)} is no integer")


def _to_entries(value: Value) -> list[tuple[bytes, bytes]] | None:
    if value is None or value is UNAVAILABLE:
        return None
    if isinstance(value, Mapping):
        return list(value.items())
    raise ValueError(f"{_shown(value)} is no set of entries")


def _exactly(kind: type) -> Callable[[Value], Any]:
    def convert(value: Value) -> Any:
        if type(value) is kind or value is None:
            return value
        if value is UNAVAILABLE:
            return None
        if kind is float and type(value) in (int, Decimal):
            near = float(value)  # type: ignore[arg-type]  # one of the two
            if near == value:
                return near
        elif kind is int and isinstance(value, Decimal) and value.is_finite() and value == int(value):
            return int(value)
        raise ValueError(f"{_shown(value)} is no {kind.__name__}")

    return convert


def _to_decimal(digits: int, scale: int) -> Callable[[Value], Decimal | None]:
    unit = Decimal(1).scaleb(-scale)
    limit = Decimal(10) ** (digits - scale)

    def convert(value: Value) -> Decimal | None:
        if value is None or value is UNAVAILABLE:
            return None
        if not isinstance(value, (str, int, Decimal)) or isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is no decimal number")
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{_shown(value)} is no decimal number") from None
        if not number.is_finite() or abs(number) >= limit or number % unit:
            raise ValueError(f"{number} does not fit decimal({digits},{scale})")
        return number

    return convert


def _shown(value: object) -> str:
    return f"{value!r:.60}"
