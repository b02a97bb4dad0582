"""Joining while the coordination service comes and goes: a process that found it once waits for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from wormhole.coordination.port import Registration
from wormhole.errors import CoordinationLost

__all__ = ["patiently"]

_log = logging.getLogger(__name__)

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0


async def patiently(register: Callable[[], Awaitable[Registration]], what: str) -> Registration:
    """Call ``register`` again while contact is missing, however long; every other error is the caller's. ``what`` is for the log.

    Starting is no worse a moment for an outage than any other: whoever is up rides it out, so whoever comes up does too.
    """
    wait = _FIRST_WAIT_S
    while True:
        try:
            return await register()
        except CoordinationLost as error:
            if wait == _FIRST_WAIT_S:
                _log.warning("%s waits to be registered: %s", what, error)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(_LONGEST_WAIT_S, 2 * wait)
