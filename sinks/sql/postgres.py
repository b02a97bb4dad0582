"""Rows of PostgreSQL, through psycopg.

The text of rows and arrays is made here: psycopg converts each value by itself, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import repeat
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from sinks.sql.arrays import Arrays
from sinks.sql.database import Columns, Data, Own
from sinks.sql.failures import RowRefused
from sinks.sql.schema import Dialect, TargetColumn, TargetTable
from subscriber_sdk.transactional.psycopg import PsycopgStore

__all__ = ["Postgres"]

_COPIED: Final = 50  # rows; for fewer, the savepoint takes longer
_LEFT_OUT: Final = 100  # tries

_FORMS = (
    ", set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true), "
    "set_config('IntervalStyle', 'postgres', true), set_config('extra_float_digits', '1', true)"
)


class _Store(PsycopgStore):
    """``password``: called for each new connection; returns ``None`` without one."""

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        super().__init__(url)
        self._password = password
        # In the statement that bounds the waits, so that a transaction has no more of them.
        (bounds,) = self.dialect.begun
        self.dialect = replace(self.dialect, begun=(bounds + _FORMS,))

    def _parameters(self, conninfo: str) -> dict[str, Any]:
        password = self._password()
        return {**super()._parameters(conninfo), **({} if password is None else {"password": password})}


class Postgres(Arrays):
    """See the port."""

    dialect = Dialect.POSTGRES
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BYTEA PRIMARY KEY, name TEXT NOT NULL, "
        "owner TEXT NOT NULL, source TEXT NOT NULL)"
    )
    lock_bounds = ("SET LOCAL lock_timeout = '3s'",)

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        self.store = _Store(url, password)
        self._left_out: dict[str, int] = {}

    def run(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._executed(connection, sql, values)
        return cursor.fetchall() if cursor.description else []

    def change(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> int:
        changed: int = self._executed(connection, sql, values).rowcount
        return changed

    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool) -> None:
        names = [*(column.name for column in columns), *own]
        into = f"{self.named(table.name)} ({', '.join(map(self.quoted, names))})"
        if not table.key:
            self._copy(connection, into, columns, data, own)
            return
        if new and len(data[0]) >= _COPIED and self._copied(connection, into, columns, data, own):
            return
        super().upsert(connection, table, columns, data, own, new=new)

    def _copied(self, connection: Any, into: str, columns: Columns, data: Data, own: Own) -> bool:
        """COPY takes half the time of an INSERT that looks for each row. If a row is there, nothing was written, and
        the next tries are left out: the rows of a backfill that is repeated are all there.
        """
        if self._left_out.get(into):
            self._left_out[into] -= 1
            return False
        self._executed(connection, "SAVEPOINT wormhole_copy", ())
        try:
            self._copy(connection, into, columns, data, own)
        except psycopg.errors.UniqueViolation:
            self._executed(connection, "ROLLBACK TO SAVEPOINT wormhole_copy", ())
            self._left_out[into] = _LEFT_OUT
            return False
        self._executed(connection, "RELEASE SAVEPOINT wormhole_copy", ())
        return True

    def _copy(self, connection: Any, into: str, columns: Columns, data: Data, own: Own) -> None:
        with connection.cursor().copy(f"COPY {into.replace('%%', '%')} FROM STDIN".encode()) as copy:
            copy.write(_lines(columns, data, own))

    def _array(self, column: TargetColumn) -> str:
        return f"%s::{column.cast}[]"

    def _values(self, column: TargetColumn, values: Sequence[Any]) -> str:
        return f"{{{','.join(_texts(column, values, _IN_ARRAYS, 'NULL', _QUOTED))}}}"

    def _executed(self, connection: psycopg.Connection[Any], sql: str, values: Sequence[Any]) -> Any:
        return connection.cursor(row_factory=tuple_row).execute(sql.encode(), values)


def _lines(columns: Columns, data: Data, own: Own) -> str:
    """The rows as COPY reads them."""
    texts = [_texts(column, values, _IN_LINES, "\\N", "{}") for column, values in zip(columns, data, strict=True)]
    stamp = "\t".join(text for value in own.values() for text in _texts(_OWN, [value], _IN_LINES, "\\N", "{}"))
    return "\n".join(map("\t".join, zip(*texts, repeat(stamp), strict=False))) + "\n"


def _texts(column: TargetColumn, values: Sequence[Any], escapes: _Escapes, null: str, quoted: str) -> list[str]:
    """The text of each value, all of one type. Raises :class:`~sinks.sql.failures.RowRefused`."""
    types = set(map(type, values)) - _NONE
    if types <= _NUMBERS:
        return [null if value is None else str(value) for value in values]
    if types == _BYTES:
        shown = ["" if value is None else rf"\\x{value.hex()}" for value in values]
    elif types == _TEXT:
        known = values if None not in values else ["" if value is None else value for value in values]
        joined = "\0".join(known)
        if joined.count("\0") >= len(values):
            raise RowRefused(f"text with the character U+0000 in column {column.name}")
        for character, escaped in escapes:  # in all of them at once
            joined = joined.replace(character, escaped)
        shown = joined.split("\0")
    else:
        raise TypeError(f"values of {', '.join(sorted(type_.__name__ for type_ in types))} in column {column.name}")
    if quoted == "{}" and None not in values:
        return shown
    return [null if value is None else quoted.format(text) for value, text in zip(values, shown, strict=True)]


_Escapes = Sequence[tuple[str, str]]
_IN_ARRAYS: Final[_Escapes] = (("\\", "\\\\"), ('"', '\\"'))
_IN_LINES: Final[_Escapes] = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_QUOTED: Final = '"{}"'
_OWN: Final = TargetColumn("of the sink's own", "text")
_NONE: Final = {type(None)}
_NUMBERS: Final = {int, Decimal, float, bool}
_BYTES: Final = {bytes}
_TEXT: Final = {str}
