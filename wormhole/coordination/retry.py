"""Lets a process start during an outage of a service that it needs: a coordination service or a datastore."""

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
    """Call ``attempt`` again as long as it raises :class:`~wormhole.model.errors.Retryable`. Other errors are raised.

    ``what``: the purpose, for the log. ``waits`` is called with each such failure. A running process waits until an
    outage ends, so a process that starts does too.
    """
    wait, logged = _FIRST_WAIT_S, ""
    while True:
        try:
            return await attempt()
        except Retryable as error:
            waits(error)
            if logged != str(error):
                logged = str(error)
                _log.warning("%s waits: %s", what, error)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(_LONGEST_WAIT_S, 2 * wait)
