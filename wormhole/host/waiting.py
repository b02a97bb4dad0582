"""Waiting for events and for the ends of tasks, and long work that delays other tasks only a little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, TypeVar

__all__ = ["cancel_all", "in_turns", "wait_at_most"]

T = TypeVar("T")

_AT_ONCE: Final = 100


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Return when ``event`` is set, or after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks and wait until each has ended. Their errors are not raised."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield each of the present items. After every hundred items the event loop runs its other due tasks."""
    for number, item in enumerate(tuple(items), 1):
        yield item
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
