"""Rows of PostgreSQL, through psycopg. Each statement takes all its rows as one array for each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from sinks.sql.database import Columns, Data, Database, Own, Scope
from sinks.sql.schema import Dialect, TargetTable
from subscriber_sdk.transactional.psycopg import PsycopgStore

__all__ = ["Postgres"]

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


class Postgres(Database):
    """See the port."""

    dialect = Dialect.POSTGRES
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BYTEA PRIMARY KEY, name TEXT NOT NULL, "
        "owner TEXT NOT NULL, source TEXT NOT NULL)"
    )
    lock_bounds = ("SET LOCAL lock_timeout = '3s'",)

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        self.store = _Store(url, password)

    def run(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._executed(connection, sql, values)
        return cursor.fetchall() if cursor.description else []

    def change(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> int:
        changed: int = self._executed(connection, sql, values).rowcount
        return changed

    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own) -> None:
        names = [*(column.name for column in columns), *own]
        listed = ", ".join(map(self.quoted, names))
        sql = (
            f"INSERT INTO {self.named(table.name)} ({listed}) SELECT d.*{', %s' * len(own)} FROM {self._data(columns)}"  # noqa: S608
        )
        if table.key:
            rest = (name for name in names if name not in table.key)
            sets = ", ".join(f"{c} = EXCLUDED.{c}" for c in map(self.quoted, rest))
            sql += f" ON CONFLICT ({', '.join(map(self.quoted, table.key))}) DO UPDATE SET {sets}"
        self._executed(connection, sql, [*own.values(), *data])

    def patch(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, scope: Scope) -> int:
        sets = [f"{self.quoted(name)} = %s" for name in own]
        sets += [f"{self.quoted(c.name)} = d{i}" for i, c in enumerate(columns) if c.name not in table.key]
        keys = [column for column in columns if column.name in table.key]
        sql = f"UPDATE {self.named(table.name)} SET {', '.join(sets)} FROM {self._data(columns)}"  # noqa: S608
        sql += f" WHERE {self._same(keys)} AND {scope.text}"
        return self.change(connection, sql, [*own.values(), *data, *scope.values])

    def delete(self, connection: Any, table: TargetTable, columns: Columns, data: Data, scope: Scope) -> None:
        sql = f"DELETE FROM {self.named(table.name)} USING {self._data(columns)} WHERE {self._same(columns)}"  # noqa: S608
        self._executed(connection, f"{sql} AND {scope.text}", [*data, *scope.values])

    def rows(
        self, connection: Any, table: TargetTable, columns: Columns, data: Data, wanted: Columns, scope: Scope
    ) -> list[tuple[Any, ...]]:
        sql = f"SELECT {self.listed(wanted)} FROM {self.named(table.name)} JOIN {self._data(columns)}"  # noqa: S608
        sql += f" ON {self._same(columns)}"
        return self.run(connection, f"{sql} WHERE {scope.text}", [*data, *scope.values])

    def _data(self, columns: Columns) -> str:
        """A table with the columns ``d0``, ``d1`` and so on. A cast to a type with a length would cut values."""
        arrays = ", ".join(f"%b::{column.cast}[]" for column in columns)
        return f"unnest({arrays}) AS d({', '.join(f'd{i}' for i in range(len(columns)))})"

    def _same(self, columns: Columns) -> str:
        return " AND ".join(f"{self.quoted(column.name)} = d{i}" for i, column in enumerate(columns))

    def _executed(self, connection: psycopg.Connection[Any], sql: str, values: Sequence[Any]) -> Any:
        return connection.cursor(row_factory=tuple_row).execute(sql.encode(), values)
