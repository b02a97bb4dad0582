"""Rows of PostgreSQL, through psycopg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from sinks.sql.arrays import Arrays
from sinks.sql.database import Columns, Data, Own
from sinks.sql.schema import Dialect, TargetColumn, TargetTable
from sinks.sql.texts import Form, texts
from subscriber_sdk.transactional.psycopg import PsycopgStore

__all__ = ["Postgres"]

_COPIED: Final = 50  # rows; for fewer, the savepoint takes longer
_LEFT_OUT: Final = 100  # tries
_IN_ARRAYS: Final = Form((("\\", "\\\\"), ('"', '\\"')), '"{}"', r'"\\x{}"')
_IN_LINES: Final = Form((("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")), "{}", r"\\x{}", r"\N")

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
    lock_bounds = ("SET LOCAL lock_timeout = '3s'", "SELECT pg_advisory_xact_lock(hashtext('wormhole_sink'))")

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
        return f"{{{','.join(texts(column.name, values, _IN_ARRAYS))}}}"

    def _executed(self, connection: psycopg.Connection[Any], sql: str, values: Sequence[Any]) -> Any:
        return connection.cursor(row_factory=tuple_row).execute(sql.encode(), values)


def _lines(columns: Columns, data: Data, own: Own) -> str:
    """The rows as COPY reads them."""
    shown = [texts(column.name, values, _IN_LINES) for column, values in zip(columns, data, strict=True)]
    stamp = "\t".join(text for name, value in own.items() for text in texts(name, [value], _IN_LINES))
    return "\n".join(map("\t".join, zip(*shown, repeat(stamp, len(data[0])), strict=True))) + "\n"
