"""Every store of ``subscriber_sdk.transactional`` over a real database, and a handler that adds sums through it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pyarrow
import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import text

from examples.demo.postgres_server import PostgresServer
from subscriber_sdk import AckLater, Datamarker, KeyRange, ScanEnd, Update
from subscriber_sdk.arrow import BatchInfo
from subscriber_sdk.backfill import Key
from subscriber_sdk.transactional import Store, TransactionalHandler
from subscriber_sdk.transactional.django import DjangoStore
from subscriber_sdk.transactional.psycopg import AsyncPsycopgStore, PsycopgStore
from subscriber_sdk.transactional.sqlalchemy import AsyncSqlAlchemyStore, SqlAlchemyStore
from subscriber_sdk.transactional.store import Session, finish, settled
from tests.support.django_databases import set_default
from tests.support.server_databases import rows_of, server_database

__all__ = ["ASYNC_STORES", "STORES", "Run", "Target", "Totals", "target_of", "totals", "transactional_target"]

TOTALS: Final = "CREATE TABLE totals (customer INT PRIMARY KEY, amount INT NOT NULL)"
Work = Callable[[Any, "Run"], Awaitable[None]]
Run = Callable[[str], Awaitable[Any]]
"""Runs a statement in the handler's transaction."""


@dataclass
class Target:
    """A database with an empty table ``totals``. ``new``: a store of it. ``sql``: a statement on a connection of its
    own; returns its rows."""

    name: str
    new: Callable[..., Store[Any]]
    sql: Callable[[str], list[tuple[Any, ...]]]

    @property
    def totals(self) -> dict[int, int]:
        """The committed sums."""
        return dict(self.sql("SELECT customer, amount FROM totals"))

    @property
    def row(self) -> tuple[int, int, int]:
        """Epoch, version and move of the only row of a shard."""
        ((epoch, version, move),) = self.sql("SELECT epoch, version, move FROM wormhole_marker")
        return epoch, version, move


async def run(connection: Any, statement: str) -> Any:
    """The statement on a connection of any driver."""
    if isinstance(connection, BaseDatabaseWrapper):
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor
    return await settled(connection.execute(statement if isinstance(connection, _PSYCOPG) else text(statement)))


async def selected(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    return [tuple(row) for row in await settled((await run(connection, statement)).fetchall())]


_PSYCOPG: Final = (psycopg.Connection, psycopg.AsyncConnection)


class Totals(TransactionalHandler[Any]):
    """Adds ``amount`` to the customer's sum. ``work`` is called instead, with a function that adds, if it is given."""

    def __init__(self, work: Work | None = None) -> None:
        self.work: Work = work or add
        self.later = 0
        self.ranges: list[KeyRange | ScanEnd] = []
        self.seen: list[str] = []


@dataclass
class Paid:
    """What of an update :func:`add` reads."""

    id: str
    key: tuple[int]
    after: Mapping[str, Any]


async def add(update: Update | Paid, sql: Run) -> None:
    """One increment, never a replacement: a repetition shows."""
    after = update.after or {}
    customer, amount = int(str(update.key[0])), int(str(after["amount"]))
    changed = await sql(f"UPDATE totals SET amount = amount + {amount} WHERE customer = {customer}")
    if changed.rowcount == 0:
        await sql(f"INSERT INTO totals VALUES ({customer}, {amount})")


async def _update(self: Totals, update: Update | Paid, connection: Any) -> None:
    self.seen.append(update.id)
    await self.work(update, lambda statement: run(connection, statement))


async def _updates(self: Totals, batch: Sequence[Update], connection: Any) -> None:
    for update in batch:
        await _update(self, update, connection)


async def _arrow(self: Totals, batch: pyarrow.RecordBatch, connection: Any) -> None:
    (key,) = BatchInfo.of(batch).key
    for row in batch.to_pylist():
        await _update(self, Paid(f"{row['_tx']}:{row['_index']}", (row[key],), row), connection)


async def _verify(self: Totals, table: str, shard: str, keys: Sequence[Key], connection: Any) -> dict[Key, Any]:
    rows = await selected(connection, "SELECT customer, amount FROM totals")
    return {(customer,): {"amount": amount} for customer, amount in rows if (customer,) in keys}


async def _verify_keys(self: Totals, table: str, shard: str, connection: Any) -> list[Key]:
    return [(customer,) for (customer,) in await selected(connection, "SELECT customer FROM totals")]


async def _range(self: Totals, keys: KeyRange | ScanEnd, connection: Any) -> None:
    await run(connection, "DELETE FROM totals WHERE customer = 99")
    self.ranges.append(keys)


async def _marker(self: Totals, marker: Datamarker, connection: Any) -> AckLater | None:
    self.later -= 1
    return AckLater(1.0) if self.later >= 0 else None


_DELIVERS: Final[dict[str, Any]] = {"on_update": _update, "on_updates": _updates, "on_arrow": _arrow}


def totals(store: Store[Any], work: Work | None = None, delivers: str = "on_update") -> Totals:
    """The handler for this store: plain ``def`` or ``async def``. ``delivers``: its callback for updates."""
    callbacks: dict[str, Any] = {
        delivers: _DELIVERS[delivers],
        "on_range": _range,
        "on_datamarker": _marker,
        "on_verify": _verify,
        "on_verify_keys": _verify_keys,
    }

    def plain(callback: Any) -> Any:
        return lambda *arguments: finish(callback(*arguments))

    if store.blocking:
        callbacks = {name: plain(callback) for name, callback in callbacks.items()}
    return type("Handler", (Totals,), callbacks)(work)  # type: ignore[no-any-return]


@contextmanager
def _of_server(server: Any) -> Iterator[tuple[str, Callable[[str], Any]]]:
    with server_database(server) as (database, connection):
        user, more = ("postgres", "?sslmode=disable") if isinstance(server, PostgresServer) else ("root", "")
        yield f"{user}@{server.host}:{server.port}/{database}{more}", partial(rows_of, connection)


@contextmanager
def _sqlite(path: Path) -> Iterator[tuple[str, Callable[[str], Any]]]:
    def sql(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    yield f"/{path}", sql


def _django(url: str, **options: Any) -> DjangoStore:
    at = urlsplit(url)
    name = at.path.removeprefix("/")
    more = {"HOST": at.hostname, "PORT": str(at.port), "USER": str(at.username)} if at.hostname else {}
    set_default(at.scheme, name, **more)
    return DjangoStore(**options)


STORES: Final[dict[str, tuple[Callable[..., Store[Any]], str]]] = {
    "psycopg": (PsycopgStore, "postgresql"),
    "sqlalchemy-postgres": (SqlAlchemyStore, "postgresql+psycopg"),
    "sqlalchemy-mariadb": (SqlAlchemyStore, "mysql+pymysql"),
    "sqlalchemy-mysql": (SqlAlchemyStore, "mysql+pymysql"),
    "sqlalchemy-sqlite": (SqlAlchemyStore, "sqlite"),
    "django-postgres": (_django, "postgresql"),
    "django-mariadb": (_django, "mysql"),
    "django-mysql": (_django, "mysql"),
    "django-sqlite": (_django, "sqlite3"),
}
"""By name, which ends with the database: the store and the scheme of its URL. Handlers are plain ``def``."""
ASYNC_STORES: Final[dict[str, tuple[Callable[..., Store[Any]], str]]] = {
    "psycopg": (AsyncPsycopgStore, "postgresql"),
    "sqlalchemy-postgres": (AsyncSqlAlchemyStore, "postgresql+psycopg"),
    "sqlalchemy-mariadb": (AsyncSqlAlchemyStore, "mysql+asyncmy"),
    "sqlalchemy-mysql": (AsyncSqlAlchemyStore, "mysql+asyncmy"),
    "sqlalchemy-sqlite": (AsyncSqlAlchemyStore, "sqlite+aiosqlite"),
}
"""The same for ``async def``."""


def target_of(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, stores: Mapping[str, Any] = STORES
) -> Iterator[Target]:
    """An empty database for the store of this name."""
    kind, scheme = stores[name]
    database = name.rpartition("-")[2].replace("psycopg", "postgres")
    server = None if database == "sqlite" else request.getfixturevalue(f"{database}_server")
    with _of_server(server) if server else _sqlite(tmp_path / "target.db") as (at, sql):
        sql(TOTALS)
        yield Target(name, partial(kind, f"{scheme}://{at}"), sql)


@pytest.fixture(params=list(STORES))
def transactional_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Every store in turn. Connections that a test left, as a process that dies does, are closed."""
    sessions: list[Session[Any]] = []
    request.getfixturevalue("monkeypatch").setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # the kit calls on its loop
    for target in target_of(request, request.param, tmp_path):
        made = target.new

        def new(made: Callable[..., Store[Any]] = made, **options: Any) -> Store[Any]:
            store = made(**options)
            connect = store.connect

            async def noted() -> Session[Any]:
                sessions.append(await connect())
                return sessions[-1]

            store.connect = noted  # type: ignore[method-assign]
            return store

        target.new = new
        yield target
        for session in sessions:
            finish(session.close())
