"""PostgreSQL through psycopg 3. Needs the extra ``postgres``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from subscriber_sdk.transactional.sql import POSTGRES, Values, pyformat
from subscriber_sdk.transactional.store import Session, Store, settled

__all__ = ["AsyncPsycopgStore", "PsycopgSession", "PsycopgStore"]

P = TypeVar("P", psycopg.Connection[Any], psycopg.AsyncConnection[Any])


class PsycopgSession(Generic[P]):
    """One connection of psycopg, synchronous or asynchronous. Both kinds have the same methods."""

    def __init__(self, connection: P) -> None:
        self.connection: P = connection
        self._driver: Any = connection

    @property
    def usable(self) -> bool:
        return not self.connection.closed

    @property
    def failed(self) -> bool:
        return self.connection.info.transaction_status is not TransactionStatus.INTRANS

    def in_use(self) -> AbstractContextManager[object]:
        return nullcontext()

    async def begin(self) -> None:
        """Do nothing, because psycopg begins a transaction with the next statement."""

    async def execute(self, sql: str, values: Values) -> int:
        changed: int = (await self._run(sql, values)).rowcount
        return changed

    async def row(self, sql: str, values: Values) -> Sequence[Any] | None:
        found: Sequence[Any] | None = await settled((await self._run(sql, values)).fetchone())
        return found

    async def commit(self) -> None:
        await settled(self._driver.commit())

    async def rollback(self) -> None:
        await settled(self._driver.rollback())

    async def close(self) -> None:
        await settled(self._driver.close())

    async def _run(self, sql: str, values: Values) -> Any:
        cursor = self._driver.cursor(row_factory=tuple_row)  # tuples, for connections of the application too
        await settled(cursor.execute(pyformat(sql).encode(), values or None, prepare=False))
        return cursor


class _PsycopgStore(Store[P]):
    """``source``: a connection string or URL, or a function that returns a new connection. Without a password in it,
    libpq takes the password from ``PGPASSFILE`` or ``PGPASSWORD``.
    """

    dialect = POSTGRES

    def __init__(self, source: str | Callable[[], P | Awaitable[P]], *, timeout: float = 20.0) -> None:
        super().__init__(timeout)
        self._source: str | Callable[[], P | Awaitable[P]] = source

    async def connect(self) -> Session[P]:
        source = self._source
        connection: Any = await settled(self._open(source) if isinstance(source, str) else source())
        await settled(connection.set_autocommit(False))
        return self._session(connection)

    def _session(self, connection: P) -> PsycopgSession[P]:
        return PsycopgSession(connection)

    def _open(self, conninfo: str) -> P | Awaitable[P]:
        raise NotImplementedError

    def _parameters(self, conninfo: str) -> dict[str, Any]:
        """The parameters by which a connection to a server that does not answer fails after the timeout."""
        seconds = max(2, round(self.timeout / 4))
        given = conninfo_to_dict(conninfo)
        alive = {"keepalives_idle": seconds, "keepalives_interval": seconds, "keepalives_count": 3}
        return {"connect_timeout": 4 * seconds, "tcp_user_timeout": 4000 * seconds, **alive, **given}


class PsycopgStore(_PsycopgStore[psycopg.Connection[Any]]):
    """A store for handlers with plain ``def``. See :class:`_PsycopgStore`."""

    blocking = True

    def _open(self, conninfo: str) -> psycopg.Connection[Any]:
        return psycopg.connect(**self._parameters(conninfo))


class AsyncPsycopgStore(_PsycopgStore[psycopg.AsyncConnection[Any]]):
    """A store for handlers with ``async def``. See :class:`_PsycopgStore`."""

    blocking = False

    def _open(self, conninfo: str) -> Awaitable[psycopg.AsyncConnection[Any]]:
        return psycopg.AsyncConnection.connect(**self._parameters(conninfo))
