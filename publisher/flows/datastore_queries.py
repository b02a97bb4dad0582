"""Queries a datastore about its log. A datastore that does not answer delays no other work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from wormhole.host.clock import Clock
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing

__all__ = ["Looks"]

_ANSWERS_S: Final = 5.0
"""Seconds to wait for an answer. Other code waits longer for a silent connection."""


class Looks:
    """Makes one query at a time, because a query without an answer occupies a thread. A context manager; its exit
    abandons the query.

    ``look``: queries the datastore; raises :class:`~wormhole.model.errors.WormholeError`.
    """

    def __init__(self, look: Callable[[], Awaitable[Standing]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._asked: asyncio.Future[Standing] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            await cancel_all(asked)

    async def ask(self) -> Standing:
        """The datastore's answer. If an earlier query is unanswered, its answer is awaited and no new query is made.
        After a timeout, the returned ``Standing`` has the timeout as its problem."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._look())
        asked, patience = self._asked, asyncio.ensure_future(self._clock.sleep(_ANSWERS_S))
        try:
            await asyncio.wait((asked, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not asked.done():
            silent = Problem(
                f"no answer within {_ANSWERS_S:g} s", "check the server's load and its network", code="source-silent"
            )
            return Standing("", ready=False, problem=silent)
        self._asked = None
        try:
            return asked.result()
        except WormholeError as error:
            return Standing("", ready=False, problem=error.problem)
