"""Beginning while what is needed comes and goes: a coordination service, a datastore."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wormhole.model.errors import Retryable

__all__ = ["retry_during_outage"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0


async def retry_during_outage(
    attempt: Callable[[], Awaitable[_T]], what: str, waits: Callable[[Retryable], None] = lambda error: None
) -> _T:
    """Call ``attempt`` again while it fails by what passes, however long; every other error is the caller's. ``what``
    is for the log, ``waits`` is called with each such failure.

    Starting is no worse a moment for an outage than any other: whoever is up rides it out, so whoever comes up does
    too.
    """
    wait, told = _FIRST_WAIT_S, ""
    while True:
        try:
            return await attempt()
        except Retryable as error:
            waits(error)
            if told != str(error):
                told = str(error)
                _log.warning("%s waits: %s", what, error)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(_LONGEST_WAIT_S, 2 * wait)
