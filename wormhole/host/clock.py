"""The clock of all code that measures durations, records times or waits. Tests replace it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["SYSTEM_CLOCK", "Clock"]


@dataclass(frozen=True, slots=True)
class Clock:
    """``monotonic``: seconds, for durations; ``wall``: seconds since 1970; ``sleep`` waits; ``pause`` blocks the
    thread; ``processor``: seconds of processor time that the calling thread has used.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    pause: Callable[[float], None] = time.sleep
    processor: Callable[[], float] = time.thread_time


SYSTEM_CLOCK: Final = Clock()
