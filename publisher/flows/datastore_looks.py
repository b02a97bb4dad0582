"""What a datastore says of a log, asked so that one that does not answer holds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from wormhole.host.clock import Clock
from wormhole.model.errors import WormholeError
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing

__all__ = ["Looks"]

_ANSWERS_S: Final = 5.0
"""A connection over which nothing comes is waited for longer elsewhere."""


class Looks:
    """One question at a time: one that is not answered keeps a thread. A context manager; its end drops the question.

    ``look``: asks the datastore; raises :class:`~wormhole.model.errors.WormholeError`.
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
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def ask(self) -> Standing:
        """What the datastore answers, to the last question where it has not answered that; or that it does not."""
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
