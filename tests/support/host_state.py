"""Waiting for what a host's state tells."""

from __future__ import annotations

from collections.abc import Callable

from monitor.state import HostState
from tests.support.eventually import patience


async def until(state: HostState, true: Callable[[], object]) -> None:
    """Return once ``true()`` is; looked at whenever the state changes."""
    async with patience():
        while not true():
            await state.wait(state.version)
