"""Rows of PostgreSQL, through psycopg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from sinks.sql.arrays import Arrays
from sinks.sql.schema import Dialect, TargetColumn
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

    def run(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._executed(connection, sql, values)
        return cursor.fetchall() if cursor.description else []

    def change(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> int:
        changed: int = self._executed(connection, sql, values).rowcount
        return changed

    def _array(self, column: TargetColumn) -> str:
        return f"%b::{column.cast}[]"

    def _executed(self, connection: psycopg.Connection[Any], sql: str, values: Sequence[Any]) -> Any:
        return connection.cursor(row_factory=tuple_row).execute(sql.encode(), values)
