"""Wakes the tasks of one event loop that wait for the next change of a state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from wormhole.host.waiting import cancel_all

__all__ = ["Signal", "Unknown", "first_of", "watch"]

_T = TypeVar("_T")


class Signal:
    """Counts changes and wakes the waiting tasks. A change between two waits is never missed."""

    def __init__(self) -> None:
        self.version = 0
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Count a change."""
        self.version += 1
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seen: int) -> None:
        """Return as soon as :attr:`version` differs from ``seen``."""
        while self.version == seen:
            await self._event.wait()


async def first_of(*waits: Awaitable[None]) -> None:
    """Return when one of ``waits`` returns; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*tasks)


class Unknown(Generic[_T]):
    """The result of a snapshot while the state cannot be known: the watch yields nothing."""


async def watch(
    signal: Signal, snapshot: Callable[[], _T | Unknown[_T]], stopped: Callable[[], bool]
) -> AsyncGenerator[_T, None]:
    """Yield ``snapshot()`` now and whenever it differs after a notification, until ``stopped()``."""
    last: _T | Unknown[_T] = Unknown()
    while not stopped():
        seen = signal.version
        state = snapshot()
        if not isinstance(state, Unknown) and state != last:
            last = state
            yield state
        await signal.wait(seen)
