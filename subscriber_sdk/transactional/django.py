"""PostgreSQL, MySQL, MariaDB and SQLite through Django's connections and models. Needs Django 5.2 or later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from subscriber_sdk.transactional.sql import MYSQL, POSTGRES, SQLITE, Values, pyformat
from subscriber_sdk.transactional.store import Session, Store
from wormhole.model.errors import UsageError

__all__ = ["DjangoStore"]

_DIALECTS: Final = {"postgresql": POSTGRES, "mysql": MYSQL, "sqlite": SQLITE}


class _Session:
    """A connection of one shard. While the transaction is open, the connection is within ``atomic``.

    Django has one connection for each alias and thread, but the SDK calls a shard from several threads. So during each
    call the alias leads to the shard's connection, and models use it.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self._transaction = ExitStack()
        self._failed = False
        connection.execute_wrappers.append(self._note)

    @property
    def usable(self) -> bool:
        django, driver = self.connection, self.connection.connection
        if driver is None or django.closed_in_transaction:
            return False
        if django.vendor == "postgresql":  # whose is_usable() cannot tell a failed transaction from a lost connection
            return not driver.closed
        return not django.errors_occurred or django.is_usable()

    @property
    def failed(self) -> bool:
        return self._failed or self.connection.needs_rollback

    @contextmanager
    def in_use(self) -> Iterator[None]:
        alias = self.connection.alias
        before = connections[alias]
        connections[alias] = self.connection
        try:
            yield
        finally:
            connections[alias] = before

    async def begin(self) -> None:
        self._failed = False
        with self.in_use():
            self._transaction.enter_context(transaction.atomic(using=self.connection.alias))

    async def execute(self, sql: str, values: Values) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(pyformat(sql), dict(values) or None)
            changed: int = cursor.rowcount
        return changed

    async def row(self, sql: str, values: Values) -> Sequence[Any] | None:
        with self.connection.cursor() as cursor:
            cursor.execute(pyformat(sql), dict(values) or None)
            found: Sequence[Any] | None = cursor.fetchone()
        return found

    async def commit(self) -> None:
        with self.in_use():
            self._transaction.close()

    async def rollback(self) -> None:
        with self.in_use():
            if self.connection.in_atomic_block:
                self.connection.set_rollback(True)
            self._transaction.close()

    async def close(self) -> None:
        self.connection.close()

    def _note(self, execute: Callable[..., Any], *statement: Any) -> Any:
        """Run a statement, and note a failure that no savepoint of ``atomic`` undoes."""
        try:
            return execute(*statement)
        except Exception:
            self._failed = self._failed or not any(self.connection.savepoint_ids)
            raise


class DjangoStore(Store[BaseDatabaseWrapper]):
    """A store for handlers with plain ``def``, with the connection settings of ``alias`` in ``DATABASES``. Models of
    this alias use the transaction. The alias' ``OPTIONS`` set the timeout for connecting.
    """

    blocking = True

    def __init__(self, alias: str = "default", *, timeout: float = 20.0) -> None:
        super().__init__(timeout)
        self._alias = alias
        vendor = connections.create_connection(alias).vendor
        if vendor not in _DIALECTS:
            raise UsageError(
                f"the database has to be one of {', '.join(sorted(_DIALECTS))}, not {vendor}", code="callback-wrong"
            )
        self.dialect = _DIALECTS[vendor]

    async def connect(self) -> Session[BaseDatabaseWrapper]:
        connection = connections.create_connection(self._alias)
        connection.inc_thread_sharing()
        connection.connect()
        connection.set_autocommit(True)  # `atomic` commits only then
        if connection.vendor == "sqlite":
            connection.transaction_mode = "IMMEDIATE"  # type: ignore[attr-defined]
        return _Session(connection)
