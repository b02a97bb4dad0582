"""Databases that a SQL mirror fills: each is reached through a proxy, so that it can be away."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from sinks.port import SinkKind
from sinks.sql.kind import DUCKDB, MYSQL, POSTGRES, SQLITE
from sinks.sql.settings import DuckDbSettings
from sinks.sql.sink import SqlSink
from subscriber_sdk.transactional.store import Session, finish
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from tests.support.server_databases import rows_of, server_database

__all__ = ["SqlTarget", "empty_target", "sql_target"]


@dataclass
class SqlTarget:
    """An empty database. ``sql``: a statement on a connection of its own; returns its rows. ``away``: within it the
    database cannot be reached.
    """

    name: str
    kind: SinkKind[Any]
    url: str
    sql: Callable[[str], list[tuple[Any, ...]]]
    away: Callable[[], Any]
    sessions: list[Session[Any]] = field(default_factory=list)

    def open(self, **settings: object) -> SqlSink:
        """A sink, as one more process opens it. Its connections are closed with the test."""
        return self.noted(self.kind.open("mirror", self.kind.settings.model_validate({"url": self.url, **settings})))

    def noted(self, sink: Any) -> SqlSink:
        """The sink, whose connections are closed with the test."""
        store = sink._database.store
        connect = store.connect

        async def connected() -> Session[Any]:
            self.sessions.append(await connect())
            return self.sessions[-1]

        store.connect = connected
        return sink  # type: ignore[no-any-return]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of every row, sorted."""
        quote = "`" if self.kind is MYSQL else '"'  # names of the tests are words of SQL, too
        return sorted(self.sql(f"SELECT {', '.join(columns)} FROM {quote}{table}{quote}"), key=repr)

    def columns(self, table: str) -> dict[str, str]:
        """The types of the columns by name."""
        if self.name == "sqlite":
            return {row[1]: row[2] for row in self.sql(f"PRAGMA table_info({table})")}
        here = "current_schema()" if self.name in ("postgres", "duckdb") else "DATABASE()"
        return dict(
            self.sql(
                "SELECT column_name, data_type FROM information_schema.columns "
                f"WHERE table_schema = {here} AND table_name = '{table}'"
            )
        )


@contextmanager
def _through(host: str, port: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    with FaultProxy(host, port) as proxy:

        @contextmanager
        def away() -> Iterator[None]:
            proxy.lead_to("127.0.0.1", free_port())
            proxy.cut()
            yield
            proxy.lead_to(host, port)

        yield f"{proxy.host}:{proxy.port}", away


@contextmanager
def _of_server(name: str, server: Any) -> Iterator[SqlTarget]:
    with server_database(server) as (database, connection), _through(server.host, server.port) as (at, away):
        sql = partial(rows_of, connection)
        if name == "postgres":
            yield SqlTarget(name, POSTGRES, f"postgresql://postgres@{at}/{database}?sslmode=disable", sql, away)
        else:
            yield SqlTarget(name, MYSQL, f"{name}://root@{at}/{database}", sql, away)


def _sqlite_rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def _duckdb_session(path: Path) -> Session[Any]:
    """With the settings of the sink. As long as it is open, DuckDB does not read the file again."""
    from sinks.sql.duckdb import DuckDb

    return finish(DuckDb(path, DuckDbSettings.model_fields["memory"].default).store.connect())


_FILES: Final = {
    "sqlite": (SQLITE, "sqlite:///{}"),
    "duckdb": (DUCKDB, "duckdb://{}"),
}


@contextmanager
def _file(name: str, folder: Path) -> Iterator[SqlTarget]:
    kind, url = _FILES[name]
    folder.mkdir()
    path = folder / "target.db"
    sessions = [_duckdb_session(path)] if name == "duckdb" else []

    def sql(statement: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]]
        found = sessions[0].connection.rows(statement) if name == "duckdb" else _sqlite_rows(path, statement)
        return found

    @contextmanager
    def away() -> Iterator[None]:
        for session in sessions:
            finish(session.close())
        elsewhere = folder.with_name("elsewhere")
        folder.rename(elsewhere)
        yield
        elsewhere.rename(folder)
        if name == "duckdb":
            sessions[0] = _duckdb_session(path)

    yield SqlTarget(name, kind, url.format(path), sql, away, sessions)


@contextmanager
def empty_target(request: pytest.FixtureRequest, name: str, folder: Path) -> Iterator[SqlTarget]:
    """A database of the server ``name``. What is left connected is closed."""
    file = name in _FILES
    with _file(name, folder / name) if file else _of_server(name, request.getfixturevalue(f"{name}_server")) as target:
        yield target
        for session in target.sessions:
            finish(session.close())


@pytest.fixture(params=("postgres", "sqlite"))
def sql_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlTarget]:
    """Those that ``make test`` tries. tests/contract/sinks/test_sql_others.py has the others."""
    with empty_target(request, request.param, tmp_path) as target:
        yield target
