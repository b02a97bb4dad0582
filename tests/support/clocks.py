"""Clocks for tests: one that the test moves, and one that runs faster than time."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from wormhole.host.clock import Clock

__all__ = ["FAST", "ScriptedClock", "fast_clock"]

FAST: Final = 20.0
"""How much faster :func:`fast_clock` runs."""


class ScriptedClock:
    """``now`` is what the test says. A sleep ends at once and moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.clock = Clock(lambda: self.now, lambda: self.now, self._sleep, self._pass)

    async def _sleep(self, seconds: float) -> None:
        self._pass(seconds)
        await asyncio.sleep(0)

    def _pass(self, seconds: float) -> None:
        self.now += seconds


def fast_clock() -> Clock:
    """A second of it is a twentieth of a second: what a publisher does now and then, a test need not wait for."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / FAST)

    return Clock(lambda: FAST * time.monotonic(), time.time, sleep)
