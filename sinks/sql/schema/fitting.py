"""Decides whether existing columns can hold the arriving values, and which values they change or refuse. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sinks.sql.schema.dialect import Dialect
from sinks.sql.schema.table import Kind, TargetColumn

__all__ = ["FITS", "Fit", "Outcome", "fit"]


class Outcome(Enum):
    """How a column holds the values of a generic type."""

    FITS = "each value is held"
    REFUSES = "a value that does not fit is refused, and its update parked"
    LOSES = "a value that does not fit is changed without an error"
    WIDENS = "the column has to get the wider type of the arriving values"
    IMPOSSIBLE = "the column holds something else"


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a column fits. ``limit``: the values that are refused or changed, in words; empty if there are none."""

    outcome: Outcome
    limit: str = ""


FITS: Final = Fit(Outcome.FITS)
_WIDENS: Final = Fit(Outcome.WIDENS)
_IMPOSSIBLE: Final = Fit(Outcome.IMPOSSIBLE)
_DOUBLE_LIMIT: Final = Fit(Outcome.LOSES, "numbers with more digits than the type has are rounded")
_FRACTION_DIGITS: Final = 6  # the most digits of a second's fraction in MySQL and PostgreSQL
_PARTS: Final = re.compile(r"(?:date|time)\b", re.IGNORECASE)  # parts of a point in time
_INT_DIGITS: Final = {"int": 19, "uint": 20}
_RANGES: Final = {"int": (-(1 << 63), (1 << 63) - 1), "uint": (0, (1 << 64) - 1)}
_KEY_KINDS: Final = frozenset(
    {Kind.BYTES, Kind.TEXT, Kind.INT, Kind.DECIMAL, Kind.DOUBLE, Kind.BOOL, Kind.UUID, Kind.MEMBERS}
)
_NUMBERS: Final = frozenset({Kind.INT, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT, Kind.BOOL})


def fit(generic: str, column: TargetColumn, dialect: Dialect, *, key: bool) -> Fit:
    """How an existing ``column`` holds values of the ``generic`` type. ``key``: whether the column is part of the key,
    where two values that the column stores as equal would become one row.
    """
    found = _FITS_OF.get(generic, _text)(column, dialect)
    if not key or found.outcome in (Outcome.WIDENS, Outcome.IMPOSSIBLE):
        return found
    if column.kind not in _KEY_KINDS or not column.exact or found.outcome is Outcome.LOSES:
        return Fit(Outcome.IMPOSSIBLE, "two keys of the source can be equal in it")
    if column.kind is Kind.MEMBERS and dialect is Dialect.DUCKDB:
        return Fit(Outcome.IMPOSSIBLE, "it is sorted in another order than it is compared")
    if dialect.is_mysql and column.type.lower().startswith("bit"):
        return Fit(Outcome.IMPOSSIBLE, "its values come back as bytes")
    if column.kind is Kind.UUID:
        return Fit(Outcome.REFUSES, "text that is no UUID in small letters with hyphens")
    return found


def _text(column: TargetColumn, dialect: Dialect) -> Fit:
    match column.kind:
        case Kind.TEXT | Kind.BYTES:
            unit = "characters" if column.kind is Kind.TEXT else "bytes"
            return FITS if column.size is None else Fit(Outcome.REFUSES, f"more than {column.size} {unit}")
        case Kind.PADDED:
            return Fit(Outcome.LOSES, f"spaces at the end are lost; more than {column.size} characters are refused")
        case Kind.TEMPORAL if dialect is not Dialect.SQLITE and _PARTS.match(column.type):
            return Fit(Outcome.LOSES, f"what {column.type} does not hold is dropped; other text is refused")
        case Kind.TEMPORAL if column.scale is not None and column.scale < _FRACTION_DIGITS:
            return Fit(
                Outcome.LOSES,
                f"a second has {column.scale} digits behind its point, more are lost; other text is refused",
            )
        case Kind.MEMBERS if dialect.is_mysql:
            return Fit(Outcome.LOSES, "text that is the number of a member becomes that member; other text is refused")
        case Kind.TEMPORAL | Kind.UUID | Kind.MEMBERS | Kind.OTHER:
            return Fit(Outcome.REFUSES, f"text that is no {column.type}")
        case Kind.JSON:
            return Fit(Outcome.REFUSES, "text that is no JSON; the server may format it in its own way")
        case _ if column.kind in _NUMBERS:
            return _WIDENS
    return _IMPOSSIBLE


def _bytes(column: TargetColumn, dialect: Dialect) -> Fit:
    match column.kind:
        case Kind.BYTES:
            return FITS if column.size is None else Fit(Outcome.REFUSES, f"more than {column.size} bytes")
        case Kind.FIXED_BYTES:
            return Fit(Outcome.LOSES, f"fewer than {column.size} bytes get zeros at their end, more are refused")
        case Kind.TEXT:
            return _WIDENS
    return _IMPOSSIBLE


def _whole(generic: str) -> Callable[[TargetColumn, Dialect], Fit]:
    lowest, highest = _RANGES[generic]

    def whole(column: TargetColumn, dialect: Dialect) -> Fit:
        match column.kind:
            case Kind.INT:
                if column.lowest <= lowest and highest <= column.highest:
                    return FITS
                return Fit(Outcome.REFUSES, f"numbers outside of {column.lowest} to {column.highest}")
            case Kind.DECIMAL:
                digits = None if column.size is None else column.size - (column.scale or 0)
                if digits is None or digits >= _INT_DIGITS[generic]:
                    return FITS
                return Fit(Outcome.REFUSES, f"numbers of more than {digits} digits")
            case Kind.BOOL:
                return Fit(Outcome.REFUSES, "numbers other than 0 and 1")
            case Kind.DOUBLE | Kind.FLOAT:
                return _DOUBLE_LIMIT
            case Kind.TEXT:
                return _text(column, dialect)
        return _IMPOSSIBLE

    return whole


def _double(column: TargetColumn, dialect: Dialect) -> Fit:
    match column.kind:
        case Kind.DOUBLE if dialect.is_mysql and column.scale is not None:
            return Fit(
                Outcome.LOSES,
                f"numbers of more than {column.scale} digits behind the point are rounded; "
                "NaN and infinities are refused",
            )
        case Kind.DOUBLE if dialect.is_mysql:
            return Fit(Outcome.REFUSES, "NaN and infinities")
        case Kind.DOUBLE if dialect is Dialect.SQLITE:
            return Fit(Outcome.REFUSES, "NaN")
        case Kind.DOUBLE:
            return FITS
        case Kind.FLOAT:
            return _DOUBLE_LIMIT
        case Kind.DECIMAL:
            return _decimal(column, dialect)
        case Kind.TEXT:
            return _text(column, dialect)
        case Kind.INT | Kind.BOOL:
            return _WIDENS
    return _IMPOSSIBLE


def _decimal(column: TargetColumn, dialect: Dialect) -> Fit:
    match column.kind:
        case Kind.DECIMAL if column.size is None:
            return FITS
        case Kind.DECIMAL:
            scale = column.scale or 0
            before = column.size - scale if column.size is not None else 0
            return Fit(Outcome.REFUSES, f"over {before} digits before the point, {scale} behind it, NaN")
        case Kind.DOUBLE | Kind.FLOAT:
            return _DOUBLE_LIMIT
        case Kind.TEXT:
            return _text(column, dialect)
        case Kind.INT | Kind.BOOL:
            return _WIDENS
    return _IMPOSSIBLE


def _bool(column: TargetColumn, dialect: Dialect) -> Fit:
    match column.kind:
        case Kind.BOOL | Kind.INT | Kind.DECIMAL | Kind.DOUBLE | Kind.FLOAT:
            return FITS
        case Kind.TEXT:
            return _text(column, dialect)
    return _IMPOSSIBLE


_FITS_OF: Final[dict[str, Callable[[TargetColumn, Dialect], Fit]]] = {
    "bytes": _bytes,
    "int": _whole("int"),
    "uint": _whole("uint"),
    "double": _double,
    "bool": _bool,
    "decimal": _decimal,
}
