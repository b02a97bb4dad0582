"""Builds SQL conditions over a table's key. Pure: the server compares and orders the keys by its collations.

A condition over several columns is written as single comparisons (``a > 1 OR (a = 1 AND b > 2)``), because the server
uses no index range for a comparison of rows. Literals have the type and collation of their column, so that the index is
used.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from datastores.common.existing_rows.reading import KeySql, key_values
from datastores.mysql.sql_text import quoted
from wormhole.wire.v1 import update_pb2

__all__ = [
    "KEY_SQL",
    "ORDERED",
    "PORTABLE",
    "KeyColumn",
    "above",
    "is_moment",
    "literal",
    "literals_of",
    "order_by",
    "up_to",
]

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
PORTABLE: Final = _INTEGERS | {"binary", "varbinary"}
"""Types of key columns that are ordered as integers or bytes, ascending."""


_DATE: Final = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME: Final = r"[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_MOMENTS: Final = {
    "date": re.compile(_DATE),
    "time": re.compile(f"-?{_TIME}"),
    **dict.fromkeys(("datetime", "timestamp"), re.compile(f"{_DATE} {_TIME}")),
}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key. ``kind``: its ``DATA_TYPE`` in lower case. ``charset`` and ``collation``: empty unless it is
    text. ``members``: of an ENUM. ``descending``: whether the index is descending."""

    name: str
    kind: str
    charset: str = ""
    collation: str = ""
    members: tuple[str, ...] = ()
    descending: bool = False


def _integer(column: KeyColumn, value: update_pb2.Value) -> str:
    return str(value.uint if value.WhichOneof("kind") == "uint" else value.int)


def _decimal(column: KeyColumn, value: update_pb2.Value) -> str:
    if not value.decimal or set(value.decimal) - set("-.0123456789"):
        raise ValueError("no decimal number")
    return value.decimal


def _finite(value: update_pb2.Value) -> float:
    if not math.isfinite(value.double):
        raise ValueError("no number")
    return value.double


def _double(column: KeyColumn, value: update_pb2.Value) -> str:
    return f"{_finite(value):.17e}"


def _single(column: KeyColumn, value: update_pb2.Value) -> str:
    """The exact number of a FLOAT. The value in the key is the shortest text that denotes it."""
    return f"{struct.unpack('<f', struct.pack('<f', _finite(value)))[0]:.17e}"


def _moment(column: KeyColumn, value: update_pb2.Value) -> str:
    if not value.text or set(value.text) - set("-+.: 0123456789"):
        raise ValueError("no date or time")
    return f"'{value.text}'"


def _text(column: KeyColumn, value: update_pb2.Value) -> str:
    if value.WhichOneof("kind") != "text":
        raise ValueError(f"no text of {column.charset}")
    raw = f"_utf8mb4 x'{value.text.encode().hex()}'"
    return f"CONVERT({raw} USING {column.charset}) COLLATE {column.collation}"


def _bytes(column: KeyColumn, value: update_pb2.Value) -> str:
    return f"x'{value.bytes.hex()}'"


def _uuid(column: KeyColumn, value: update_pb2.Value) -> str:
    return f"CAST('{uuid.UUID(bytes=value.bytes)}' AS UUID)"


def _address(column: KeyColumn, value: update_pb2.Value) -> str:
    kind = ipaddress.IPv4Address if column.kind == "inet4" else ipaddress.IPv6Address
    return f"CAST('{kind(value.bytes)}' AS {column.kind.upper()})"


def _enum(column: KeyColumn, value: update_pb2.Value) -> str:
    """The member's number, by which the server orders."""
    return str(column.members.index(value.text) + 1 if value.text else 0)


ORDERED: Final[dict[str, tuple[str, Callable[[KeyColumn, update_pb2.Value], str]]]] = {
    **dict.fromkeys((*_INTEGERS, "year"), ("int", _integer)),
    "bit": ("uint", _integer),
    "decimal": ("decimal", _decimal),
    "double": ("double", _double),
    "float": ("double", _single),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), ("text", _moment)),
    **dict.fromkeys(("char", "varchar"), ("text", _text)),
    **dict.fromkeys(("binary", "varbinary"), ("bytes", _bytes)),
    "uuid": ("bytes", _uuid),
    **dict.fromkeys(("inet4", "inet6"), ("bytes", _address)),
    "enum": ("text", _enum),
}
"""By type of a key's column: the kind of its values in updates, and the function that writes a value in SQL."""


def literal(column: KeyColumn, value: update_pb2.Value) -> str:
    """``value`` as SQL. Raises ``ValueError`` if it does not fit the column, or cannot be written in SQL."""
    kind, write = ORDERED[column.kind]
    given = value.WhichOneof("kind")
    if given != kind and (given, kind) != ("uint", "int"):
        raise ValueError(f"a key of {column.name} has {given or 'no value'}, not {kind}")
    return write(column, value)


def literals_of(columns: Sequence[KeyColumn], key: bytes) -> list[str]:
    """A key's values as SQL. Raises ``ValueError`` if the key does not fit the columns, or cannot be written in SQL."""
    return [literal(column, value) for column, value in zip(columns, key_values(key, len(columns)), strict=True)]


def is_moment(column: KeyColumn, value: update_pb2.Value) -> bool:
    """Whether the value is valid for a column of dates or times; true for other columns. Servers refuse a comparison
    with an invalid value, such as a 13th month."""
    if column.kind not in _MOMENTS:
        return True
    found = _MOMENTS[column.kind].fullmatch(value.text)
    if found is None or column.kind == "time":
        return found is not None
    year, month, day = map(int, found.groups())
    try:
        date(year or 2000, month or 1, day or 1)  # tables may hold zero dates
    except ValueError:
        return False
    return True


def above(columns: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition for the keys after ``literals``."""
    return _beyond(columns, literals, after=True)


def up_to(columns: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition for the keys up to and including ``literals``."""
    return f"({_beyond(columns, literals, after=False)} OR {_equal(columns, literals)})"


def among(columns: Sequence[KeyColumn], keys: Iterable[Sequence[str]]) -> str:
    """The condition for the given keys."""
    return f"({' OR '.join(_equal(columns, literals) for literals in keys)})"


KEY_SQL: Final = KeySql(literals_of, above, up_to, among)


def _equal(columns: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition for a single key."""
    return f"({' AND '.join(f'{quoted(c.name)} = {text}' for c, text in zip(columns, literals, strict=True))})"


def order_by(columns: Sequence[KeyColumn]) -> str:
    """The ORDER BY clause's columns, in the order of the index."""
    return ", ".join(f"{quoted(column.name)}{' DESC' if column.descending else ''}" for column in columns)


def _beyond(columns: Sequence[KeyColumn], literals: Sequence[str], *, after: bool) -> str:
    parts = []
    for i, column in enumerate(columns):
        here = _one_side(column, literals[i], greater=after != column.descending)
        parts.append(f"({_equal(columns[:i], literals[:i])} AND {here})" if i else here)
    return f"({' OR '.join(parts)})"


def _one_side(column: KeyColumn, text: str, *, greater: bool) -> str:
    """The condition for values of one column above or below a literal."""
    if column.kind != "enum":
        return f"{quoted(column.name)} {'>' if greater else '<'} {text}"
    # The server uses an ENUM's index only for equality. It accepts the numbers of members there.
    number = int(text)
    numbers = range(number + 1, len(column.members) + 1) if greater else range(number)
    return f"{quoted(column.name)} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"
