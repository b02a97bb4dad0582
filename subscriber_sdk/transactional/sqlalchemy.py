"""PostgreSQL, MySQL, MariaDB and SQLite through SQLAlchemy 2. Needs the extra ``sqlalchemy`` and a driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.pool import NullPool

from subscriber_sdk.transactional.sql import MYSQL, POSTGRES, SQLITE, Dialect, Values
from subscriber_sdk.transactional.store import Session, Store, settled
from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["AsyncSqlAlchemyStore", "SqlAlchemyStore"]

A = TypeVar("A")

_FAILED: Final = "wormhole_failed"
_DIALECTS: Final = {"postgresql": POSTGRES, "mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE}

# SQLite's first transaction begins before a statement could bound its waits.
_TIMEOUTS: Final = {
    "pymysql": ("connect_timeout", "read_timeout", "write_timeout"),
    "asyncmy": ("connect_timeout", "read_timeout"),
    "pysqlite": ("timeout",),
    "aiosqlite": ("timeout",),
}


class _Session(Generic[A]):
    """One connection of SQLAlchemy, synchronous or asynchronous. Both kinds have the same methods."""

    def __init__(self, connection: A, sync: Connection) -> None:
        self.connection: A = connection
        self._driver: Any = connection
        self._sync = sync
        self._transaction: Any = None

    @property
    def usable(self) -> bool:
        return not self._sync.closed and not self._sync.invalidated

    @property
    def failed(self) -> bool:
        return _FAILED in self._sync.info

    def in_use(self) -> AbstractContextManager[object]:
        return nullcontext()

    async def begin(self) -> None:
        self._sync.info.pop(_FAILED, None)
        self._transaction = await settled(self._driver.begin())

    async def execute(self, sql: str, values: Values) -> int:
        changed: int = (await self._run(sql, values)).rowcount
        return changed

    async def row(self, sql: str, values: Values) -> Sequence[Any] | None:
        found: Sequence[Any] | None = (await self._run(sql, values)).fetchone()
        return found

    async def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        await settled(transaction.commit())

    async def rollback(self) -> None:
        if self._transaction is not None:
            await settled(self._transaction.rollback())
        if self._sync.in_transaction():
            await settled(self._driver.rollback())

    async def close(self) -> None:
        await settled(self._driver.close())

    async def _run(self, sql: str, values: Values) -> Any:
        return await settled(self._driver.execute(text(sql), values))


def _note(context: ExceptionContext) -> None:
    """Note a failed statement that no savepoint of SQLAlchemy's undoes."""
    connection = context.connection
    if connection is not None and not connection.closed and not connection.in_nested_transaction():
        connection.info[_FAILED] = True


def _prepare(connection: Connection) -> Connection:
    """Prepare a connection. With SQLite, its transactions take the lock at their beginning, and it does not return to a
    pool.
    """
    if connection.dialect.name == "sqlite":
        connection.detach()
        connection.connection.dbapi_connection.isolation_level = None  # type: ignore[union-attr]
        event.listen(connection, "begin", _begin_immediate)
    return connection


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _watched(engine: Engine) -> Dialect:
    """The engine's dialect. From now on its connections remember failed statements."""
    name = engine.dialect.name
    if name not in _DIALECTS:
        raise UsageError(
            f"the database has to be one of {', '.join(sorted(_DIALECTS))}, not {name}", code="callback-wrong"
        )
    event.listen(engine, "handle_error", _note)
    return _DIALECTS[name]


class SqlAlchemyStore(Store[Connection]):
    """A store for handlers with plain ``def``. ``source``: a URL, or the application's engine."""

    blocking = True

    def __init__(self, source: str | URL | Engine, *, timeout: float = 20.0) -> None:
        super().__init__(timeout)
        self._engine = source if isinstance(source, Engine) else create_engine(source, **_options(source, timeout))
        self.dialect = _watched(self._engine)

    async def connect(self) -> Session[Connection]:
        connection = _prepare(self._engine.connect())
        return _Session(connection, connection)


class AsyncSqlAlchemyStore(Store["AsyncConnection"]):
    """A store for handlers with ``async def``. ``source``: a URL with an asynchronous driver, or the application's
    engine."""

    blocking = False

    def __init__(self, source: str | URL | AsyncEngine, *, timeout: float = 20.0) -> None:
        import_module("greenlet")  # without it, SQLAlchemy fails only when it connects
        from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

        super().__init__(timeout)
        self._engine = (
            source if isinstance(source, AsyncEngine) else create_async_engine(source, **_options(source, timeout))
        )
        self.dialect = _watched(self._engine.sync_engine)

    async def connect(self) -> Session[AsyncConnection]:
        connection = await self._engine.connect()
        return _Session(connection, await connection.run_sync(_prepare))


def _options(source: str | URL, timeout: float) -> dict[str, Any]:
    """Engine options: no pool, because each shard has one connection, and the timeout for connecting."""
    bounded = _TIMEOUTS.get(make_url(source).get_driver_name(), ())
    return {"poolclass": NullPool, "connect_args": dict.fromkeys(bounded, timeout)}
