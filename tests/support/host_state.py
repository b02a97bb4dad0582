"""Waiting for what a host's state tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from monitor.state import HostState

__all__ = ["until"]

_PATIENCE_S = 30.0


async def until(state: HostState, true: Callable[[], object]) -> None:
    """Return once ``true()`` is; looked at whenever the state changes. ``TimeoutError`` after half a minute."""
    async with asyncio.timeout(_PATIENCE_S):
        while not true():
            await state.wait(state.version)
