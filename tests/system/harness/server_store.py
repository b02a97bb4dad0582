"""The database of a MySQL or MariaDB server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.constants.CLIENT import MULTI_STATEMENTS

from tests.system.harness.sql_store import SqlStore
from tests.system.harness.truth import Content, digest

DATABASE: Final = "shop"
_COLUMNS: Final = "`key` VARBINARY(64) PRIMARY KEY, value LONGBLOB NOT NULL"
_WRITE: Final = "INSERT INTO {} (`key`, value) VALUES (%s, %s) ON DUPLICATE KEY UPDATE value = VALUES(value)"
_OTHERS: Final = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()"


class ServerStore(SqlStore):
    """``port``: where the server listens, on loopback.

    Its numbers are those of the GTIDs: one writer, one domain, one server make them count transactions.
    """

    home = DATABASE
    lost = (pymysql.err.OperationalError, pymysql.err.InterfaceError)

    def __init__(self, port: int, journal: Path, tables: Iterable[str]) -> None:
        self._port = port
        super().__init__(journal, tables)

    def flush(self) -> None:
        """Another binlog file, and a table whose columns stand elsewhere from now on: no change, and a number."""
        self._run("FLUSH BINARY LOGS")
        change = "DROP COLUMN note" if self._altered else "ADD COLUMN note VARCHAR(20) FIRST"
        self.intend([])
        happened = self._happened(f"ALTER TABLE {self._tables[-1]} {change}")
        self.confirm(happened)
        self._altered ^= happened

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

    # -- inside

    def _statement(self, table: str, key: bytes, value: bytes | None) -> str:
        with self._connection.cursor() as cursor:
            if value is None:
                return str(cursor.mogrify(f"DELETE FROM {table} WHERE `key` = %s", (key,)))
            return str(cursor.mogrify(_WRITE.format(table), (key, value)))

    def _commit(self, statements: tuple[str, ...]) -> None:
        self._run("BEGIN", *statements, "COMMIT")

    def _run(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(";".join(statements))
            while cursor.nextset():
                pass

    def _rows(self, table: str, *columns: str) -> list[Any]:
        return self._asked(f"SELECT {', '.join(('`key`', *columns))} FROM {table}")

    def _asked(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _connect(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self._port,
            user="root",
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
            client_flag=MULTI_STATEMENTS,
        )

    def _alone(self) -> bool:
        return self._asked(_OTHERS) == [(0,)]

    def _look(self) -> None:
        self._mysql = "MariaDB" not in self._asked("SELECT VERSION()")[0][0]
        there = {name for (name,) in self._asked("SHOW DATABASES")}
        if DATABASE not in there:
            self._run(f"CREATE DATABASE {DATABASE}", *(f"CREATE TABLE {table} ({_COLUMNS})" for table in self._tables))
        self._altered = bool(self._asked(f"SHOW COLUMNS FROM {self._tables[-1]} LIKE 'note'"))
        # `uuid:1-17` and `0-1-17`: the number behind the last dash or colon.
        ((executed,),) = self._asked(f"SELECT @@GLOBAL.{'gtid_executed' if self._mysql else 'gtid_binlog_pos'}")
        self._sequence = int(str(executed).replace(":", "-").rpartition("-")[2] or 0)
