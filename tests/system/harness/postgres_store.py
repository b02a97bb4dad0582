"""A database of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.system.harness.sql_store import SqlStore

SCHEMA: Final = "shop"
PREPARED: Final = (
    f"CREATE SCHEMA {SCHEMA}",
    "CREATE SCHEMA truth",
    "CREATE TABLE truth.counter (n bigint NOT NULL, place pg_lsn NOT NULL)",
    "INSERT INTO truth.counter VALUES (0, '0/0')",
)
"""What an empty database needs first. The counter is in no publication."""
_HERE: Final = "pg_current_wal_insert_lsn()"
_WRITE: Final = "INSERT INTO {} (key, value) VALUES ({}, {}) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_WRITERS: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writer'"


class PostgresStore(SqlStore):
    """``port``: where the server listens, on loopback; ``database``: its database.

    The numbers are those of a counter that each transaction raises. What the log calls a transaction, the LSN of its
    commit, lies between the two of :attr:`where`.
    """

    home = SCHEMA
    lost = (psycopg.OperationalError, psycopg.InterfaceError)

    def __init__(self, port: int, database: str, journal: Path, tables: Iterable[str]) -> None:
        self._port, self._database = port, database
        self._where = (0, 0)
        super().__init__(journal, tables)

    @property
    def where(self) -> tuple[int, int]:
        return self._where

    def flush(self) -> None:
        """Another file of the log, and a table with a column more or less from now on: no change, and no number."""
        change = "DROP COLUMN IF EXISTS note" if self._altered else "ADD COLUMN IF NOT EXISTS note varchar(20)"
        try:
            self._run("SELECT pg_switch_wal()", f"ALTER TABLE {self._tables[-1]} {change}")
        except self.lost:
            self._open()
        else:
            self._altered = not self._altered

    # -- inside

    def _statement(self, table: str, key: bytes, value: bytes | None) -> str:
        if value is None:
            return f"DELETE FROM {table} WHERE key = {_bytes(key)}"
        return _WRITE.format(table, _bytes(key), _bytes(value))

    def _commit(self, statements: tuple[str, ...]) -> None:
        self._run("BEGIN", *statements, f"UPDATE truth.counter SET n = n + 1, place = {_HERE}", "COMMIT")
        ((begin, end),) = self._run(f"SELECT place - '0/0', {_HERE} - '0/0' FROM truth.counter")
        self._where = int(begin), int(end)

    def _run(self, *statements: str) -> list[Any]:
        cursor = self._connection.execute("; ".join(statements).encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def _rows(self, table: str, *columns: str) -> list[Any]:
        return self._run(f"SELECT {', '.join(('key', *columns))} FROM {table}")

    def _connect(self) -> Any:
        return psycopg.connect(
            autocommit=True,
            application_name="writer",
            host="127.0.0.1",
            port=self._port,
            dbname=self._database,
            user="postgres",
            sslmode="disable",
            connect_timeout=10,
        )

    def _alone(self) -> bool:
        return self._run(_WRITERS) == [(1,)]

    def _look(self) -> None:
        columns = "key bytea PRIMARY KEY, value bytea NOT NULL"
        self._run(*(f"CREATE TABLE IF NOT EXISTS {table} ({columns})" for table in self._tables))
        column = f"attrelid = '{self._tables[-1]}'::regclass AND attname = 'note'"
        self._altered = bool(self._run(f"SELECT 1 FROM pg_attribute WHERE {column}"))
        ((number, begin, end),) = self._run(f"SELECT n, place - '0/0', {_HERE} - '0/0' FROM truth.counter")
        self._sequence, self._where = int(number), (int(begin), int(end))


def _bytes(value: bytes) -> str:
    return f"'\\x{value.hex()}'"
