"""Separate threads for work that a peer causes: opening and storing the updates that it parks.

The publisher's own work, such as storing datamarkers, never waits for this work. One peer has one turn at a time, so a
peer that causes much work delays another peer by one turn only. The processor time of each turn is charged to the
peer's allowance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from wormhole.host.clock import SYSTEM_CLOCK, Clock

__all__ = ["Charge", "PeerThreads"]

_T = TypeVar("_T")

Charge = Callable[[float], None]
"""Called with processor seconds that a peer has caused."""


class PeerThreads:
    """Threads that peers share. ``name``: the threads' name; ``threads``: how many peers have a turn at a time."""

    def __init__(self, name: str, threads: int = 1, clock: Clock = SYSTEM_CLOCK) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._processor = clock.processor

    async def run(self, peer: str, work: Callable[[], _T], charge: Charge) -> _T:
        """Do ``work`` in a thread when it is the turn of ``peer``. Returns its result, and raises its errors.
        ``charge`` is called in both cases.
        """
        turn = self._turns.get(peer)
        if turn is None:
            turn = self._turns[peer] = asyncio.Lock()
        spent = 0.0

        def timed() -> _T:
            nonlocal spent
            began = self._processor()
            try:
                return work()
            finally:
                spent = self._processor() - began

        async with turn:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, timed)
            finally:
                charge(spent)

    def close(self) -> None:
        """Start no further work. Running work ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
