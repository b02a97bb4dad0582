"""Waiting for what no event reports.

Every wait of a test lasts at most :data:`PATIENCE_S`, however busy the machine is: the limit ends what hangs, and
nothing is judged by it. The mutants shorten it with ``WORMHOLE_TEST_PATIENCE`` (seconds): many of them make a test
wait for what never comes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_LIMIT: Final = "3600" if "WORMHOLE_ROUNDS" in os.environ else "300"
PATIENCE_S: Final = float(os.environ.get("WORMHOLE_TEST_PATIENCE", _LIMIT))


def patience() -> asyncio.Timeout:
    """``async with patience():`` around a wait for an event."""
    return asyncio.timeout(PATIENCE_S)


async def eventually(true: Callable[[], object], what: str) -> None:
    """Wait until ``true()`` is. ``what`` says in a traceback what was waited for."""
    async with patience():
        while not true():  # noqa: ASYNC110 - the reason is above
            await asyncio.sleep(0.005)


def until(true: Callable[[], T | None], what: Callable[[], str] | str) -> T:
    """Wait until ``true()`` is, and return what it returned. ``what`` is the message of the failure."""
    ends, pause_s = time.monotonic() + PATIENCE_S, 0.002
    while not (found := true()):
        assert time.monotonic() < ends, what if isinstance(what, str) else what()
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 0.1)
    return found
