"""Waiting for what no event tells, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["eventually"]


async def eventually(true: Callable[[], object], what: str) -> None:
    """Wait until ``true()`` is; at most ten seconds, then ``TimeoutError``. ``what`` says in a traceback what was waited for."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the reason is above
            await asyncio.sleep(0.005)
