"""A database on a MySQL or MariaDB server, written to by one connection like any application's; the server may die
meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.constants.CLIENT import MULTI_STATEMENTS

from tests.support.eventually import PATIENCE_S
from tests.system.harness.store import Operation, Store
from tests.system.harness.truth import Content, digest

DATABASE: Final = "shop"
_COLUMNS: Final = "`key` VARBINARY(64) PRIMARY KEY, value LONGBLOB NOT NULL"
_WRITE: Final = "INSERT INTO {table} (`key`, value) VALUES (%s, %s) ON DUPLICATE KEY UPDATE value = VALUES(value)"
_DELETE: Final = "DELETE FROM {table} WHERE `key` = %s"


class ServerStore(Store):
    """``tables``: beside ``default``; the log tells them with their database.

    ``port``: where the server listens, on loopback.

    Its numbers are those of the GTIDs: one writer, one domain, one server make them count transactions.
    """

    def __init__(self, port: int, journal: Path, tables: Iterable[str]) -> None:
        super().__init__(journal)
        self._port = port
        self._tables = [f"{DATABASE}.{name}" for name in ("default_", *tables)]
        self._connection: Any = None
        self._keys: dict[str, set[bytes]] = {}
        self._sequence = 0
        self._altered = False
        self._open()
        self.settle()

    @property
    def sequence(self) -> int:
        return self._sequence

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
        with self._connection.cursor() as cursor:
            statements = [
                cursor.mogrify(_DELETE.format(table=self._full(name)), (key,))
                if value is None
                else cursor.mogrify(_WRITE.format(table=self._full(name)), (key, value))
                for name, key, value in operations
            ]
        if not self._happened("BEGIN", *statements, "COMMIT"):
            return False
        for name, key, value in operations:
            keys = self._keys[self._full(name)]
            keys.discard(key) if value is None else keys.add(key)
        return True

    def flush(self) -> None:
        """Another binlog file, and a table whose columns stand elsewhere from now on: nothing to tell, and a number."""
        self._run("FLUSH BINARY LOGS")
        change = "DROP COLUMN note" if self._altered else "ADD COLUMN note VARCHAR(20) FIRST"
        self.intend([])
        happened = self._happened(f"ALTER TABLE {self._tables[-1]} {change}")
        self.confirm(happened)
        self._altered ^= happened

    def state(self) -> dict[str, dict[str, str]]:
        return {table: {key.hex(): digest(value) for key, value in self._rows(table)} for table in self._tables}

    def bulk(self, rows: int, size: int) -> None:
        table = self._tables[0]
        keys = [b"bulk-%08d" % number for number in range(rows)]
        limit = "cte_max_recursion_depth" if self._mysql else "max_recursive_iterations"
        self._run(f"SET SESSION {limit} = {rows}")
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {rows - 1})"
        key = "CONCAT('bulk-', LPAD(i, 8, '0'))"
        come = f"INSERT INTO {table} (`key`, value) {numbers} SELECT {key}, '' FROM n ORDER BY i"
        change = f"UPDATE {table} SET value = RPAD(`key`, {size}, '-') WHERE `key` LIKE 'bulk-%' ORDER BY `key`"
        for op, statement in (("insert", come), ("update", change)):
            values = [b"" if op == "insert" else key.ljust(size, b"-") for key in keys]
            self.intend([Content(op, table, key.hex(), digest(value)) for key, value in zip(keys, values, strict=True)])
            self.confirm(self._happened(statement))
        self._keys[table].update(keys)

    def close(self) -> None:
        self._connection.close()
        super().close()

    # -- inside

    def _full(self, name: str) -> str:
        return f"{DATABASE}.{'default_' if name == 'default' else name}"

    def _happened(self, *statements: str) -> bool:
        """Run what makes one transaction; when the server dies over it, what it holds when it is back says whether
        it happened."""
        intended = self._sequence + 1
        try:
            self._run(*statements)
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
            self._open()
            return self._sequence >= intended
        self._sequence = intended
        return True

    def _run(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(";".join(statements))
            while cursor.nextset():
                pass

    def _rows(self, table: str) -> list[tuple[bytes, bytes]]:
        return self._asked(f"SELECT `key`, value FROM {table}")

    def _asked(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _open(self) -> None:
        """Connect, once the server is there and nothing of an earlier writer's is under way."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(Exception):
                self._connection.close()
            try:
                self._connection = pymysql.connect(
                    host="127.0.0.1",
                    port=self._port,
                    user="root",
                    charset="utf8mb4",
                    autocommit=True,
                    ssl_disabled=True,
                    client_flag=MULTI_STATEMENTS,
                )
                others = (
                    "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()"
                )
                while self._asked(others) != [(0,)]:
                    time.sleep(0.02)
                self._look()
                return
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _look(self) -> None:
        """What the server holds."""
        self._mysql = "MariaDB" not in self._asked("SELECT VERSION()")[0][0]
        there = {name for (name,) in self._asked("SHOW DATABASES")}
        if DATABASE not in there:
            self._run(f"CREATE DATABASE {DATABASE}", *(f"CREATE TABLE {table} ({_COLUMNS})" for table in self._tables))
        self._keys = {
            table: {bytes(key) for (key,) in self._asked(f"SELECT `key` FROM {table}")} for table in self._tables
        }
        self._altered = bool(self._asked(f"SHOW COLUMNS FROM {self._tables[-1]} LIKE 'note'"))
        # `uuid:1-17` and `0-1-17`: the number behind the last dash or colon.
        told = str(
            self._asked("SELECT @@GLOBAL.gtid_executed" if self._mysql else "SELECT @@GLOBAL.gtid_binlog_pos")[0][0]
        )
        self._sequence = int(told.replace(":", "-").rpartition("-")[2] or 0)
