"""An empty database of a server of any kind, with one connection: to open one costs a server more than a statement."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from examples.demo.database_server import DatabaseServer
from examples.demo.postgres_server import PostgresServer
from tests.support.postgres_server import new_database

__all__ = ["rows_of", "server_database"]


@contextmanager
def server_database(server: DatabaseServer | PostgresServer) -> Iterator[tuple[str, Any]]:
    """Its name, and a connection to it, each statement a transaction."""
    if isinstance(server, PostgresServer):
        with new_database(server) as name, server.connect(name, prepare_threshold=None) as connection:
            yield name, connection
        return
    name = f"test_{uuid.uuid4().hex[:12]}"
    server.sql(f"CREATE DATABASE {name}")
    with closing(server.connect(database=name)) as own:
        yield name, own
        own.cursor().execute(f"DROP DATABASE {name}")


def rows_of(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """The rows that a statement has."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description is not None else []
