"""Which callbacks the application overrides, and whether each runs on the event loop or in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from importlib import import_module
from itertools import groupby
from types import ModuleType
from typing import Any, Final

from subscriber_sdk.router import Router, is_async
from subscriber_sdk.subscriber import Subscriber
from wormhole.model.errors import UsageError
from wormhole.wire.update import Update

__all__ = ["NAMES", "Handlers", "Taker", "each_in_thread"]

Taker = Callable[[Sequence[Update], int], tuple[int, Any]]

NAMES: Final = (
    "on_update",
    "on_updates",
    "on_arrow",
    "on_shard_notice",
    "on_schema",
    "on_datamarker",
    "on_range",
    "on_scan_end",
    "on_verify",
    "on_verify_keys",
    "on_rollback",
    "on_data_loss",
    "on_error",
)
_OF_UPDATES: Final = NAMES[:3]
_THREADS: Final = 32
"""The most plain ``def`` callbacks that run at the same time. The other flows wait."""


class Handlers:
    """The callbacks of one subscriber object.

    ``pool``: where plain ``def`` callbacks run (``None``: threads of its own). Raises :class:`TypeError` unless exactly
    one of ``on_update``, ``on_updates`` and ``on_arrow`` is overridden, and
    :class:`~wormhole.model.errors.UsageError` for a router without handlers, and for ``on_arrow`` without pyarrow.
    """

    def __init__(self, subscriber: Subscriber, pool: Executor | None = None) -> None:
        if not isinstance(subscriber, Subscriber):
            raise TypeError(f"{subscriber!r} is no subscriber_sdk.Subscriber")
        self.overridden = frozenset(
            name
            for name in NAMES
            if getattr(getattr(subscriber, name), "__func__", None) is not getattr(Subscriber, name)
        )
        name = type(subscriber).__name__
        found = [one for one in _OF_UPDATES if one in self.overridden]
        if len(found) > 1:
            raise TypeError(f"{name} overrides both {' and '.join(found)}: which of them should get an update?")
        if not found:
            raise TypeError(f"{name} overrides none of {', '.join(_OF_UPDATES)}: it would receive nothing")
        (self.name,) = found
        """The name of the callback that takes the updates."""
        self._arrow = _import_arrow(name) if self.name == "on_arrow" else None
        self._router = subscriber if isinstance(subscriber, Router) else None
        if self._router is not None:
            self._router.check()
        self._subscriber = subscriber
        self._async = {name: is_async(getattr(subscriber, name)) for name in NAMES}
        self.batched = self.name != "on_update"
        """Whether the update callback takes several updates at once."""
        self.threaded = not self._async[self.name]
        """Whether the update callback is a plain ``def``; with a router see :meth:`in_thread`."""
        self.on_update: Callable[[Update], Any] = subscriber.on_update
        self.on_batch: Callable[[Any], Any] = subscriber.on_arrow if self.name == "on_arrow" else subscriber.on_updates
        self._pool = pool

    @property
    def verifies(self) -> bool:
        """Whether the application can return the keys and the content of its rows."""
        return {"on_verify", "on_verify_keys"} <= self.overridden

    def in_thread(self, update: Update) -> bool:
        """Whether the callback that gets ``update`` is a plain ``def``."""
        return self.threaded if self._router is None else self._router.blocks(update)

    def parts(self, updates: list[Update]) -> Iterable[tuple[bool, list[Update]]]:
        """Divide ``updates``, in order, into parts with the same value of :meth:`in_thread`. Each part comes with this
        value."""
        if self._router is None:
            return ((self.threaded, updates),)
        return ((threaded, list(part)) for threaded, part in groupby(updates, self._router.blocks))

    def taker(self) -> Taker:
        """A function for one flow that takes updates and an index. It returns how many updates from the index on the
        batch callback gets together, and the argument of that callback."""
        if self._arrow is None:
            return _rest
        take: Taker = self._arrow.RecordBatches(self._subscriber.arrow_before).take
        return take

    @property
    def pool(self) -> Executor:
        """The threads of plain ``def`` callbacks, made when first needed."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="wormhole-handler")
        return self._pool

    def submit(self, callback: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a callback in a thread, with the caller's context variables, so that a handler's spans get a parent."""
        return self.pool.submit(copy_context().run, callback, *arguments)

    def close(self) -> None:
        """Release the threads. A thread that runs a callback ends when the callback returns."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def call(self, name: str, argument: Any, *rest: Any) -> Awaitable[Any]:
        """Await the callback ``name``, which is not for updates. A callback that is not overridden returns at once."""
        callback = getattr(self._subscriber, name)
        if name not in self.overridden:
            return _done(callback(argument, *rest))
        if self._async[name]:
            awaitable: Awaitable[Any] = callback(argument, *rest)
            return awaitable
        return asyncio.wrap_future(self.submit(_checked, callback, argument, *rest))


def _rest(updates: Sequence[Update], begin: int) -> tuple[int, Sequence[Update]]:
    """All of them."""
    return len(updates) - begin, updates[begin:] if begin else updates


def _import_arrow(subscriber: str) -> ModuleType:
    try:
        return import_module("subscriber_sdk.arrow")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise UsageError(
            f"{subscriber} overrides on_arrow, which needs the package pyarrow: it is not installed",
            hint="pip install 'wormhole-pubsub[arrow]'",
            code="extra-missing",
        ) from error


async def _done(value: Any) -> Any:
    return value


def _checked(callback: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain ``def`` callback. Raises ``TypeError`` if it returns an awaitable, which would never be awaited."""
    result = callback(*arguments)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        name = getattr(callback, "__qualname__", repr(callback))
        raise TypeError(f"{name} is a plain def and returned an awaitable: declare it with async def")
    return result


def each_in_thread(callback: Callable[[Any], Any], arguments: Iterable[Any], begin: Callable[[Any], bool]) -> bool:
    """Call ``callback`` with one argument after the other. The caller runs this function in a thread.

    ``begin``: called with each argument before its call; returns whether to continue. Returns whether all calls were
    made.
    """
    for argument in arguments:
        if not begin(argument):
            return False
        _checked(callback, argument)
    return True
