"""Converts values of updates into values that the driver stores in a column, and back. Pure."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from sinks.sql.schema.dialect import Dialect, quoted
from sinks.sql.schema.table import Kind, TargetColumn
from wormhole.formats.json_values import value_as_json
from wormhole.model.values import Value

__all__ = ["reader", "selected", "unchanged", "writer"]

Writer = Callable[[Any], Any]
Reader = Callable[[Any], Value]

_AS_TEXT: Final = frozenset({Kind.TEMPORAL, Kind.JSON, Kind.UUID, Kind.MEMBERS, Kind.OTHER})
"""The kinds of columns that are read as the server's text, because drivers return other types for them."""
_NATURAL: Final = {
    Kind.BYTES: "bytes",
    Kind.FIXED_BYTES: "bytes",
    Kind.INT: "int",
    Kind.DECIMAL: "decimal",
    Kind.DOUBLE: "double",
    Kind.FLOAT: "double",
    Kind.BOOL: "bool",
}
"""The generic type of values of a column that no schema describes; text for the others."""
_RANGES: Final = {"int": (-(1 << 63), (1 << 63) - 1), "uint": (0, (1 << 64) - 1)}
_SINGLE: Final = struct.Struct("<f")
_DIGITS: Final = range(1, 10)
"""The numbers of digits to try; nine digits are enough for every four-byte number."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def selected(column: TargetColumn, dialect: Dialect) -> str:
    """The expression in a SELECT whose result :func:`reader` can convert."""
    name = quoted(column.name, dialect)
    if column.kind is Kind.INT and column.type.startswith("bit"):
        return f"CAST({name} AS UNSIGNED)"
    if dialect.is_mysql and (column.kind is Kind.FLOAT or _has_decimals(column)):
        return f"CAST({name} AS DOUBLE)"  # the text of a FLOAT has six digits, that of a DOUBLE(20,4) four decimals
    if column.kind not in _AS_TEXT or dialect is Dialect.SQLITE:
        return name
    if dialect is Dialect.POSTGRES:
        return f"{name}::text"
    return f"CAST({name} AS {'CHAR' if dialect.is_mysql else 'VARCHAR'})"


def writer(generic: str, column: TargetColumn, dialect: Dialect, *, key: bool = False) -> Writer | None:
    """A function that converts a value of the ``generic`` type into the driver's value for ``column``; ``None``: no
    conversion is needed. ``generic``: empty if not known. ``key``: whether equal keys must get equal values.

    The function raises ``ValueError``, without the value in its message, for a value that the column cannot hold.
    """
    generic = generic or _NATURAL.get(column.kind, "text")
    match generic:
        case "int" | "uint":
            make = _write_whole(generic, column)
        case "double":
            make = _write_double(column, dialect)
        case "bool":
            make = {Kind.BOOL: None, Kind.TEXT: _bool_text, Kind.DOUBLE: float, Kind.FLOAT: float}.get(column.kind, int)
        case "decimal":
            make = _key_text if key and column.kind is Kind.TEXT else _write_decimal(column)
        case "bytes":
            make = None
        case "entries":
            make = _entries_text
        case _:
            make = _uuid_text if key and column.kind is Kind.UUID else _write_text(column, dialect)
    return None if make is None else _or_null(make)


def unchanged(generic: str, column: TargetColumn, dialect: Dialect) -> type | None:
    """The type of values that :func:`writer` does not change for ``column``; ``None``: there is no such type. Text may
    contain U+0000, which PostgreSQL itself refuses.
    """
    match generic, column.kind:
        case (("text" | "hash"), Kind.TEXT) if dialect is not Dialect.SQLITE:
            return str
        case "decimal", Kind.DECIMAL if column.size is None:
            return Decimal
    return None


def reader(generic: str, column: TargetColumn, dialect: Dialect) -> Reader | None:
    """The inverse of :func:`writer`, for results of :func:`selected`. ``generic``: empty if not known. Text in the
    server's own form compares as equal to every text of the same value.
    """
    make = _read_known(generic, column) or _read_rounded(column) or _READ_KINDS.get(column.kind)
    return None if make is None else _or_null(make)


def _or_null(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        return None if value is None else make(value)

    return converted


def _write_whole(generic: str, column: TargetColumn) -> Writer | None:
    match column.kind:
        case Kind.BOOL:
            return _zero_or_one
        case Kind.TEXT:
            return str
        case Kind.INT:
            lowest, highest = column.lowest, column.highest
            if lowest <= _RANGES[generic][0] and _RANGES[generic][1] <= highest:
                return None

            def checked(value: int) -> int:
                if not lowest <= value <= highest:
                    raise ValueError(f"a number outside of {lowest} to {highest}")
                return value

            return checked
    return None


def _zero_or_one(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError("a number other than 0 and 1 for a truth value")
    return value == 1


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _write_double(column: TargetColumn, dialect: Dialect) -> Writer | None:
    match column.kind:
        case Kind.TEXT:
            return repr
        case Kind.DECIMAL:
            fitting = _write_decimal(column)
            return None if fitting is None else lambda value: fitting(Decimal(repr(value)))
    if dialect.is_mysql:
        return _finite
    return _number if dialect is Dialect.SQLITE else None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("NaN or an infinity")
    return value


def _number(value: float) -> float:
    if math.isnan(value):
        raise ValueError("NaN, which SQLite stores as NULL")
    return value


def _write_decimal(column: TargetColumn) -> Writer | None:
    """The conversion of decimal numbers. NaN and infinities arrive as text."""
    match column.kind:
        case Kind.TEXT:
            return _decimal_text
        case Kind.DOUBLE | Kind.FLOAT:
            return float
        case Kind.DECIMAL if column.size is None:
            return Decimal
        case Kind.DECIMAL:
            scale = column.scale or 0
            before = column.size - scale if column.size is not None else 0

            def fitting(value: Decimal | str) -> Decimal:
                number = Decimal(value)
                if not number.is_finite():
                    raise ValueError("NaN or an infinity")
                if number.adjusted() >= before and number:
                    raise ValueError(f"a number of more than {before} digits before the point")
                fraction = format(number, "f").partition(".")[2]
                if len(fraction) > scale and fraction[scale:].strip("0"):
                    raise ValueError(f"a number of more than {scale} digits behind the point")
                return number

            return fitting
    return None


def _decimal_text(value: Decimal | str) -> str:
    return value if isinstance(value, str) else format(value, "f")


def _key_text(value: Decimal | str) -> str:
    """The text of a number in a key, without zeros at its end, because 1.0 and 1.00 are one key."""
    text = _decimal_text(value)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _write_text(column: TargetColumn, dialect: Dialect) -> Writer | None:
    if dialect is Dialect.SQLITE:
        return None
    if column.kind is Kind.BYTES:
        return _encoded
    return _text_without_nul if dialect is Dialect.POSTGRES else _text


def _uuid_text(value: str | bytes) -> str:
    """Check that text is a UUID in its usual form. Any other form would be another key in the source, but the same key
    in the target."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise ValueError("text that is no UUID in small letters with hyphens; make the column text")
    return value


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(value: str | bytes) -> str:
    if not isinstance(value, str):
        raise ValueError("text that is not valid in the source's encoding")
    return value


def _text_without_nul(value: str | bytes) -> str:
    text = _text(value)
    if "\0" in text:
        raise ValueError("text with the character U+0000")
    return text


def _entries_text(value: Mapping[bytes, bytes]) -> str:
    return _dump(value_as_json(value)["entries"])


class _Shown(str):
    """Text in a server's own form, equal to every text of the same value."""

    __slots__ = ()

    @staticmethod
    def form(text: str) -> Any:
        """A form that is equal for every text of the same value."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return False
        return str.__eq__(self, other) or self.form(str(self)) == self.form(str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class _Rounded(float):
    """A number that a column rounded. It is also equal to the decimal number before the rounding to binary."""

    __slots__ = ("meant",)
    meant: float

    def __eq__(self, other: object) -> bool:
        return float(self) == other or self.meant == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


class _Time(_Shown):
    __slots__ = ()

    @staticmethod
    def form(text: str) -> str:
        text = _UTC.sub("", text.replace("T", " "))
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.removesuffix(" 00:00:00")


class _Json(_Shown):
    __slots__ = ()

    @staticmethod
    def form(text: str) -> Any:
        try:
            return json.loads(text, parse_float=Decimal)
        except ValueError:
            return text


class _Uuid(_Shown):
    __slots__ = ()

    @staticmethod
    def form(text: str) -> str:
        return text.strip("{}").replace("-", "").lower()


class _Padded(_Shown):
    __slots__ = ()

    @staticmethod
    def form(text: str) -> str:
        return text.rstrip(" ")


class _Entries(str):
    """The text of a row of a key-value store, equal to its entries."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, _entries_text(other) if isinstance(other, Mapping) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


_UTC: Final = re.compile(r"(?:[+-]00(?::00)?|Z)$")


def _read_known(generic: str, column: TargetColumn) -> Reader | None:
    match generic, column.kind:
        case (("int" | "uint"), Kind.TEXT):
            return _or_text(int)
        case "double", (Kind.TEXT | Kind.DECIMAL):
            return _or_text(float)
        case "bool", Kind.TEXT:
            return lambda value: bool(value == "true")
        case "decimal", (Kind.DOUBLE | Kind.FLOAT):
            meant = _meant(column)
            return _or_text(_decimal if meant is None else lambda value: _decimal(meant(value)))
        case "decimal", Kind.TEXT:
            return _or_text(_decimal)
        case (("text" | "hash"), Kind.BYTES):
            return _decoded
        case "entries", _:
            return _Entries
    return None


def _has_decimals(column: TargetColumn) -> bool:
    """Whether the column's type is DOUBLE(M,D) of MySQL."""
    return column.kind is Kind.DOUBLE and column.scale is not None


def _meant(column: TargetColumn) -> Callable[[float], float] | None:
    """A function from the number that a column stores to the decimal number for it; ``None``: they are the same."""
    if column.kind is Kind.FLOAT:
        return _shortest
    if _has_decimals(column):
        return lambda value: float(f"{value:.{column.scale}f}")
    return None


def _shortest(value: float) -> float:
    """The number with the fewest digits that is stored as the same four bytes."""
    if not math.isfinite(value):
        return value
    stored = _SINGLE.pack(value)
    return next(
        (near for near in (float(f"{value:.{digits}g}") for digits in _DIGITS) if _is_single(near, stored)), value
    )


def _is_single(value: float, stored: bytes) -> bool:
    try:
        return _SINGLE.pack(value) == stored
    except OverflowError:  # rounded up beyond the largest four-byte number
        return False


def _read_rounded(column: TargetColumn) -> Reader | None:
    meant = _meant(column)
    if meant is None:
        return None

    def rounded(value: float) -> float:
        found = _Rounded(value)
        found.meant = meant(value)
        return found

    return rounded


def _or_text(make: Callable[[Any], Any]) -> Reader:
    """A reader that leaves text unchanged if it is no number, which a column may have from an earlier type."""

    def converted(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, ArithmeticError):
            return value

    return converted


def _decimal(value: Any) -> Decimal | str:
    """A decimal number, or text for NaN and infinities, as updates have them."""
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    return number if number.is_finite() else str(number)


def _decoded(value: bytes | str) -> bytes | str:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


_READ_KINDS: Final[Mapping[Kind, Reader]] = {
    Kind.DECIMAL: _decimal,
    Kind.TEMPORAL: _Time,
    Kind.JSON: _Json,
    Kind.UUID: _Uuid,
    Kind.PADDED: _Padded,
}
