"""Waiting for what no event tells, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["eventually"]

_PATIENCE_S = 30.0  # a loaded machine may need seconds for what takes milliseconds elsewhere


async def eventually(true: Callable[[], object], what: str) -> None:
    """Wait until ``true()`` is; at most half a minute, then ``TimeoutError``. ``what`` says in a traceback what was waited for."""
    async with asyncio.timeout(_PATIENCE_S):
        while not true():  # noqa: ASYNC110 - the reason is above
            await asyncio.sleep(0.005)
