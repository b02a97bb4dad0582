"""An empty database of each dialect, with a connection as a SQL sink has it."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest

from examples.demo.database_server import DatabaseServer
from examples.demo.postgres_server import PostgresServer
from sinks.sql.schema import Dialect, TableName, TargetTable, actual
from tests.support.postgres_server import new_database

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


@contextmanager
def _mysql(server: DatabaseServer, dialect: Dialect) -> Iterator[Database]:
    name = f"sink_{uuid.uuid4().hex[:8]}"
    server.sql(f"CREATE DATABASE {name}")
    with closing(server.connect(database=name)) as connection:
        strict = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
        connection.cursor().execute(f"SET SESSION sql_mode = '{strict}', time_zone = '+00:00'")
        yield Database(dialect, connection)
    server.sql(f"DROP DATABASE {name}")


@contextmanager
def _postgres(server: PostgresServer) -> Iterator[Database]:
    with new_database(server) as name, server.connect(name) as connection:
        yield Database(Dialect.POSTGRES, connection)


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def sql_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database of every dialect in turn."""
    dialect: Dialect = request.param
    match dialect:
        case Dialect.POSTGRES:
            with _postgres(request.getfixturevalue("postgres_server")) as database:
                yield database
        case Dialect.MYSQL | Dialect.MARIADB:
            with _mysql(request.getfixturevalue(f"{dialect.value}_server"), dialect) as database:
                yield database
        case Dialect.SQLITE:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                yield Database(dialect, connection, "?")
        case Dialect.DUCKDB:
            import duckdb

            with closing(duckdb.connect(":memory:")) as connection:
                yield Database(dialect, connection, "?")
