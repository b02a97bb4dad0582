"""The port of an application's database: the operations that :mod:`subscriber_sdk.transactional.shard` needs.

The methods of every store are coroutines. The coroutines of a blocking store never wait for the event loop, so that
:func:`finish` can run them to their end in the thread of a plain ``def`` callback.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from subscriber_sdk.transactional.sql import Dialect, Values
from wormhole.model.errors import WormholeError

__all__ = ["Session", "Store", "finish", "settled"]

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
_T = TypeVar("_T")


class Session(Protocol[C_co]):
    """One connection. Methods raise what the driver raises."""

    @property
    def connection(self) -> C_co:
        """The connection that the handler gets."""
        ...

    @property
    def usable(self) -> bool:
        """Whether the connection still exists, as far as the driver knows."""
        ...

    @property
    def failed(self) -> bool:
        """Whether a statement of the transaction failed outside of the handler's savepoints."""
        ...

    def in_use(self) -> AbstractContextManager[object]:
        """A context around each call of the handler, in the handler's thread."""
        ...

    async def begin(self) -> None:
        """Begin a transaction."""
        ...

    async def execute(self, sql: str, values: Values) -> int:
        """Run a statement of :mod:`~subscriber_sdk.transactional.sql`; returns how many rows it changed."""
        ...

    async def row(self, sql: str, values: Values) -> Sequence[Any] | None:
        """The first row of a query; ``None`` if there is no row."""
        ...

    async def commit(self) -> None:
        """Commit the transaction."""
        ...

    async def rollback(self) -> None:
        """Roll it back."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Store(Generic[C]):
    """Connections to one database. ``timeout``: seconds that one statement, one wait for a lock and one pause within a
    transaction may take. It has to be shorter than ``handler_timeout``. ``refusal``: converts an error
    of the driver that only an operator can remedy; ``None``: the error is a temporary one.
    """

    blocking: bool
    """Whether handlers are plain ``def``, with a connection that blocks."""

    dialect: Dialect
    """The database's SQL."""

    def __init__(self, timeout: float) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout = {timeout!r}: a positive number of seconds is needed")
        self.timeout = timeout
        self.refusal: Callable[[Exception], WormholeError | None] = lambda error: None

    async def connect(self) -> Session[C]:
        """A new connection. Raises what the driver raises."""
        raise NotImplementedError

    def create_statements(self) -> list[str]:
        """The statements that make the table ``wormhole_marker``, for a database where the application may not."""
        return [self.dialect.create]

    def turn(self) -> AbstractAsyncContextManager[object]:
        """A lock for the calls of one shard."""
        return _BlockingTurn(self.timeout) if self.blocking else asyncio.Lock()


class _BlockingTurn:
    """The lock of a blocking store. A thread cannot be cancelled, so a callback that exceeds its time limit keeps the
    lock until it returns."""

    def __init__(self, timeout: float) -> None:
        self._lock = threading.Lock()
        self._timeout = timeout

    async def __aenter__(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise TimeoutError(f"another callback of the shard still runs after {self._timeout:g} s")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()


def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that does not wait for an event loop. Returns its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise TypeError("a plain def callback waited for the event loop")


async def settled(value: Any) -> Any:
    """The value, awaited if it is awaitable, because a driver's methods may be synchronous or asynchronous."""
    return await value if inspect.isawaitable(value) else value
