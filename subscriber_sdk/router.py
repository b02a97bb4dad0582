"""Chooses a handler function for each update by its table, for applications that do not subclass ``Subscriber``."""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, TypeVar, final

from subscriber_sdk.subscriber import Subscriber
from wormhole.model.errors import UsageError
from wormhole.wire.update import Update

__all__ = ["Router", "is_async"]

log = logging.getLogger("subscriber_sdk")

_Handler = Callable[[Update], Awaitable[None] | None]
_H = TypeVar("_H", bound=_Handler)
_REMEMBERED: Final = 4096  # the most tables whose handler is cached
_NAMED: Final = 1000  # the most tables that `unhandled` names


class Router(Subscriber):
    """Calls a function for each update, chosen by its table::

        router = Router()

        @router.on("shop.users")
        async def user_changed(update: Update) -> None: ...

        run(router, application="cache")

    A function is a handler like :meth:`Subscriber.on_update`: ``async def``, or plain ``def`` to run in a thread.
    Returning means processed, raising means roll back and try again. Subclass to override the other callbacks.
    """

    def __init__(self) -> None:
        self.unhandled: Counter[str] = Counter()
        """The number of updates without a handler, by table. They are acknowledged. Tables beyond the first 1000 are
        counted under the empty name.
        """
        self._handlers: dict[str, _Handler] = {}
        self._route = lru_cache(_REMEMBERED)(self._find)

    def on(self, *tables: str) -> Callable[[_H], _H]:
        """Have the decorated function called for the updates of ``tables``, TRUNCATE included.

        A table may be a shell pattern, as in the application's ``tables``: ``shop.*`` is every table of a database. One
        function gets an update: the function with the table's exact name, otherwise the matching pattern that was
        registered first. Raises :class:`~wormhole.model.errors.UsageError` for a table that has a handler already and
        for a function that does not take one argument.
        """
        if not tables or not all(isinstance(table, str) and table for table in tables):
            raise UsageError(
                "on() takes the names of tables", hint='write @router.on("shop.users")', code="callback-wrong"
            )

        def register(handler: _H) -> _H:
            try:
                inspect.signature(handler).bind(None)
            except TypeError as error:
                raise UsageError(
                    f"{_name(handler)} is no handler: it has to take one argument, the update", code="callback-wrong"
                ) from error
            for table in tables:
                if (other := self._handlers.get(table)) is not None:
                    raise UsageError(f'table "{table}" has a handler already: {_name(other)}', code="callback-wrong")
                self._handlers[table] = handler
            self._route.cache_clear()
            return handler

        return register

    @final
    def on_update(self, update: Update) -> Awaitable[None] | None:
        """Call the table's handler."""
        handler, _ = self._route(update.table)
        return handler(update)

    def check(self) -> None:
        """Raise :class:`~wormhole.model.errors.UsageError` when there is no handler."""
        if not self._handlers:
            raise UsageError(
                "the router has no handlers",
                hint='decorate a function with @router.on("shop.users")',
                code="callback-wrong",
            )

    def blocks(self, update: Update) -> bool:
        """Whether the handler of ``update`` is a plain ``def``."""
        return self._route(update.table)[1]

    def _find(self, table: str) -> tuple[_Handler, bool]:
        """The handler of a table, and whether it is a plain ``def``."""
        patterns = (one for one in self._handlers if fnmatchcase(table, one))
        handler = self._handlers.get(table) or self._handlers.get(next(patterns, ""), self._pass_over)
        return handler, not is_async(handler)

    async def _pass_over(self, update: Update) -> None:
        unhandled, table = self.unhandled, update.table
        if table not in unhandled:
            if len(unhandled) >= _NAMED:
                table = ""
            else:
                log.warning(
                    "table %s has no handler: its updates are acknowledged and counted. Next: add one, or leave the "
                    "table out of the application's `tables`",
                    table,
                )
        unhandled[table] += 1


def is_async(callback: Callable[..., Any]) -> bool:
    """Whether the callback is defined so that a call returns an awaitable."""
    call = getattr(callback, "__call__", None)  # noqa: B004 - an object with an async __call__ is a callback too
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
