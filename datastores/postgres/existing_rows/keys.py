"""Builds SQL conditions over a table's key. Pure: the server compares and orders the keys.

The server compares with the collations and operators of the key's index. An extension's operators are in its schema,
which the session does not search. Without a schema their signs would name operators of other types. So every operator
is written with its schema, and a comparison of several columns is written as single comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from datastores.common.existing_rows.reading import KeySql, key_values
from datastores.postgres.decode.kinds import BYTES, INT, UINT
from datastores.postgres.sql_text import quote_identifier, quote_literal
from wormhole.wire.v1 import update_pb2

__all__ = [
    "KEY_SQL",
    "PLAIN",
    "PORTABLE",
    "ROW",
    "KeyColumn",
    "above",
    "among",
    "column_of_row",
    "literals_of",
    "order_by",
    "same",
    "up_to",
]

ROW: Final = "r"
"""The table's alias in a SELECT."""
PLAIN: Final = ("<", "<=", "=", ">=", ">")
"""The built-in operators, in the order of a btree's strategy numbers."""
PORTABLE: Final = frozenset({INT, UINT, BYTES})
"""Kinds of key columns that are ordered as integers or bytes."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key. ``place``: the position of its value in a key of the log. ``type`` and ``collation``: as SQL;
    ``collation`` is empty if the type has none. ``declared``: the type with its modifiers. ``labels``: an enum's
    labels. ``under``: the base type of a domain, to which values are cast, because the server finds no operator for a
    domain over an enum.
    """

    name: str
    place: int
    kind: int
    type: str
    collation: str = ""
    declared: str = ""
    labels: tuple[str, ...] = ()
    operators: tuple[str, ...] = PLAIN
    under: str = ""

    @property
    def sql(self) -> str:
        """The column as in an ORDER BY."""
        return self._collated(column_of_row(self.name))

    @property
    def compared(self) -> str:
        """The column as in a comparison."""
        return self._collated(column_of_row(self.name) + self.as_under)

    @property
    def as_under(self) -> str:
        """The cast of a value in a comparison."""
        return f"::{self.under}" if self.under else ""

    def _collated(self, text: str) -> str:
        return f"{text} COLLATE {self.collation}" if self.collation else text


def column_of_row(name: str) -> str:
    """A column with the table's alias. Without it the name could also mean a column of the result."""
    return f"{ROW}.{quote_identifier(name)}"


def literals_of(key: Sequence[KeyColumn], serialized: bytes) -> list[str]:
    """A key's values as SQL, in the order of ``key``. Raises ``ValueError`` if the values do not fit the key or cannot
    be written in SQL.
    """
    values = key_values(serialized, len(key))
    return [f"{_quoted(column, values[column.place])}::{column.type}{column.as_under}" for column in key]


def order_by(key: Iterable[KeyColumn]) -> str:
    """The ORDER BY clause's columns."""
    return ", ".join(
        column.sql if column.operators == PLAIN else f"{column.sql} USING {column.operators[_LESS]}" for column in key
    )


def above(key: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition for the rows after a key."""
    if _is_plain(key):
        return _rows(key, ">", literals)
    return _written_out(key, _ABOVE, literals)


def up_to(key: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition for the rows up to and including a key."""
    if _is_plain(key):
        return _rows(key, "<=", literals)
    return _written_out(key, _LESS, literals, _equal(key, [column.compared for column in key], literals))


def among(key: Sequence[KeyColumn], keys: Iterable[Sequence[str]]) -> str:
    """The condition for the rows with the given keys."""
    names = [column.compared for column in key]
    return f"({' OR '.join(_equal(key, names, literals) for literals in keys)})"


def same(key: Sequence[KeyColumn], literals: Sequence[str], others: Iterable[Sequence[str]]) -> str:
    """The SQL expression for whether the server regards a key as equal to one of ``others``, by a collation or because
    a number has several spellings."""
    collated = [
        f"{text} COLLATE {column.collation}" if column.collation else text
        for column, text in zip(key, literals, strict=True)
    ]
    return " OR ".join(_equal(key, collated, other) for other in others)


KEY_SQL: Final = KeySql(literals_of, above, up_to, among)

_LESS, _UP_TO, _EQUAL, _FROM, _ABOVE = range(5)
_BOUNDS: Final = {_LESS: _UP_TO, _ABOVE: _FROM}


def _is_plain(key: Iterable[KeyColumn]) -> bool:
    return all(column.operators == PLAIN for column in key)


def _rows(key: Sequence[KeyColumn], operator: str, literals: Sequence[str]) -> str:
    return f"({', '.join(column.compared for column in key)}) {operator} ({', '.join(literals)})"


def _equal(key: Sequence[KeyColumn], left: Sequence[str], right: Sequence[str]) -> str:
    pairs = zip(key, left, right, strict=True)
    return f"({' AND '.join(f'{one} {column.operators[_EQUAL]} {other}' for column, one, other in pairs)})"


def _written_out(key: Sequence[KeyColumn], operator: int, literals: Sequence[str], *more: str) -> str:
    """The comparison of several columns: the first columns are equal, and the next one is above or below. A separate
    condition on the first column gives the index its range."""
    names = [column.compared for column in key]
    cases = [
        " AND ".join(
            [
                *([_equal(key[:at], names[:at], literals[:at])] if at else []),
                f"{names[at]} {column.operators[operator]} {literals[at]}",
            ]
        )
        for at, column in enumerate(key)
    ]
    bound = f"{names[0]} {key[0].operators[_BOUNDS[operator]]} {literals[0]}"
    return f"{bound} AND ({' OR '.join([*cases, *more])})"


def _quoted(column: KeyColumn, value: update_pb2.Value) -> str:
    if value.WhichOneof("kind") == "bytes" and column.kind != BYTES:
        # The value is no valid text in the database's encoding.
        return f"E'{''.join(f'{chr(92)}x{byte:02x}' for byte in value.bytes)}'"
    return quote_literal(_text(column, value))


def _text(column: KeyColumn, value: update_pb2.Value) -> str:
    """The value as text in the server's format. Raises ``ValueError``."""
    match value.WhichOneof("kind"):
        case "text":
            text = value.text
        case "int":
            text = str(value.int)
        case "uint":
            text = str(value.uint)
        case "double":
            text = repr(value.double)
        case "decimal":
            text = value.decimal
        case "bool":
            text = "t" if value.bool else "f"
        case "bytes":
            return f"\\x{value.bytes.hex()}"
        case kind:
            raise ValueError(f"{column.name} cannot be {kind or 'nothing'}")
    if "\0" in text:
        raise ValueError(f"{column.name} holds a zero byte")
    return text
