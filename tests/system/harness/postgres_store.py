"""A database on a PostgreSQL server, written to by one connection like any application's; the server may die
meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.support.eventually import PATIENCE_S
from tests.system.harness.store import Operation, Store
from tests.system.harness.truth import Content, digest

SCHEMA: Final = "shop"
PREPARED: Final = (
    f"CREATE SCHEMA {SCHEMA}",
    "CREATE SCHEMA truth",
    "CREATE TABLE truth.counter (n bigint NOT NULL, place pg_lsn NOT NULL)",
    "INSERT INTO truth.counter VALUES (0, '0/0')",
)
"""What an empty database needs first. The counter is in no publication."""
_HERE: Final = "pg_current_wal_insert_lsn()"
_WRITE: Final = (
    "INSERT INTO {table} (key, value) VALUES ({key}, {value}) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_LOST: Final = (psycopg.OperationalError, psycopg.InterfaceError)


class PostgresStore(Store):
    """``tables``: beside ``default``; the log tells them with their schema.

    ``port``: where the server listens, on loopback; ``database``: its database.

    The numbers are those of a counter that each transaction raises. What the log calls a transaction, the LSN of its
    commit, lies between the two of :attr:`where`.
    """

    def __init__(self, port: int, database: str, journal: Path, tables: Iterable[str]) -> None:
        super().__init__(journal)
        self._address: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "dbname": database,
            "user": "postgres",
            "sslmode": "disable",
            "connect_timeout": 10,
        }
        self._tables = [f"{SCHEMA}.{name}" for name in ("default_", *tables)]
        self._connection: Any = None
        self._keys: dict[str, set[bytes]] = {}
        self._sequence = 0
        self._where = (0, 0)
        self._altered = False
        self._open()
        self.settle()

    @property
    def sequence(self) -> int:
        return self._sequence

    @property
    def where(self) -> tuple[int, int]:
        return self._where

    def changes(self, operations: list[Operation]) -> list[Content]:
        present = {table: set(keys) for table, keys in self._keys.items()}
        found = []
        for name, key, value in operations:
            table = self._full(name)
            there = key in present[table]
            if value is not None:
                found.append(Content("update" if there else "insert", table, key.hex(), digest(value)))
                present[table].add(key)
            elif there:
                found.append(Content("delete", table, key.hex(), ""))
                present[table].remove(key)
        return found

    def apply(self, operations: list[Operation]) -> bool:
        statements = [
            f"DELETE FROM {self._full(name)} WHERE key = {_bytes(key)}"
            if value is None
            else _WRITE.format(table=self._full(name), key=_bytes(key), value=_bytes(value))
            for name, key, value in operations
        ]
        if not self._happened(statements):
            return False
        for name, key, value in operations:
            keys = self._keys[self._full(name)]
            keys.discard(key) if value is None else keys.add(key)
        return True

    def flush(self) -> None:
        """Another file of the log, and a table with a column more or less from now on: nothing to tell, no number."""
        change = "DROP COLUMN IF EXISTS note" if self._altered else "ADD COLUMN IF NOT EXISTS note varchar(20)"
        try:
            self._run("SELECT pg_switch_wal()", f"ALTER TABLE {self._tables[-1]} {change}")
        except _LOST:
            self._open()
        else:
            self._altered = not self._altered

    def state(self) -> dict[str, dict[str, str]]:
        return {
            table: {
                bytes(key).hex(): digest(bytes(value)) for key, value in self._run(f"SELECT key, value FROM {table}")
            }
            for table in self._tables
        }

    def close(self) -> None:
        self._connection.close()
        super().close()

    # -- inside

    def _full(self, name: str) -> str:
        return f"{SCHEMA}.{'default_' if name == 'default' else name}"

    def _happened(self, statements: list[str]) -> bool:
        """Run what makes one transaction; when the server dies over it, what it holds when it is back says whether
        it happened."""
        intended = self._sequence + 1
        try:
            count = f"UPDATE truth.counter SET n = n + 1, place = {_HERE}"
            self._run("BEGIN", *statements, count, "COMMIT")
            ((begin, end),) = self._run(f"SELECT place - '0/0', {_HERE} - '0/0' FROM truth.counter")
        except _LOST:
            self._open()
            return self._sequence >= intended
        self._sequence, self._where = intended, (int(begin), int(end))
        return True

    def _run(self, *statements: str) -> list[Any]:
        cursor = self._connection.execute("; ".join(statements).encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def _open(self) -> None:
        """Connect, once the server is there and nothing of an earlier writer's is under way."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(Exception):
                self._connection.close()
            try:
                self._connection = psycopg.connect(autocommit=True, application_name="writer", **self._address)
                writers = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writer'"
                while self._run(writers) != [(1,)]:
                    time.sleep(0.02)
                self._look()
                return
            except _LOST:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _look(self) -> None:
        """What the server holds."""
        columns = "key bytea PRIMARY KEY, value bytea NOT NULL"
        self._run(*(f"CREATE TABLE IF NOT EXISTS {table} ({columns})" for table in self._tables))
        self._keys = {table: {bytes(key) for (key,) in self._run(f"SELECT key FROM {table}")} for table in self._tables}
        column = f"attrelid = '{self._tables[-1]}'::regclass AND attname = 'note'"
        self._altered = bool(self._run(f"SELECT 1 FROM pg_attribute WHERE {column}"))
        ((number, begin, end),) = self._run(f"SELECT n, place - '0/0', {_HERE} - '0/0' FROM truth.counter")
        self._sequence, self._where = int(number), (int(begin), int(end))


def _bytes(value: bytes) -> str:
    return f"'\\x{value.hex()}'"
