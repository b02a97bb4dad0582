"""Waiting for an event, for a while."""

from __future__ import annotations

import asyncio

__all__ = ["wait_at_most"]


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Return when ``event`` is set, or after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
