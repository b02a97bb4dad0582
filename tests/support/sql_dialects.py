"""An empty database of each dialect, with a connection as a SQL sink has it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from sinks.sql.schema import Dialect, TableName, TargetTable, actual
from tests.support.server_databases import server_database

__all__ = ["Database", "sql_database"]


class Database:
    """``run``: one statement, with its values as ``%s``; returns its rows."""

    def __init__(self, dialect: Dialect, connection: Any, mark: str = "%s") -> None:
        self.dialect = dialect
        self._connection = connection
        self._mark = mark

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(sql.replace("%s", self._mark), tuple(values))
        found = cursor.fetchall() if cursor.description is not None else ()
        return [tuple(row) for row in found]

    def table(self, name: str = "target") -> TargetTable | None:
        """The table that is there."""
        return actual(self.run, TableName(None, name), self.dialect)


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def sql_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database of every dialect in turn."""
    dialect: Dialect = request.param
    match dialect:
        case Dialect.POSTGRES | Dialect.MYSQL | Dialect.MARIADB:
            with server_database(request.getfixturevalue(f"{dialect.name.lower()}_server")) as (_, connection):
                if dialect is not Dialect.POSTGRES:
                    strict = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
                    connection.cursor().execute(f"SET SESSION sql_mode = '{strict}', time_zone = '+00:00'")
                yield Database(dialect, connection)
        case Dialect.SQLITE:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                yield Database(dialect, connection, "?")
        case Dialect.DUCKDB:
            import duckdb

            with closing(duckdb.connect(":memory:")) as connection:
                yield Database(dialect, connection, "?")
