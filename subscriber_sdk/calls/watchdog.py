"""Cancels a callback that exceeds its time limit, at almost no cost per call.

A timer per call would cost more than a small callback. So the flow only notes its present item. One timer per flow
checks every eighth of the limit whether the item changed. A callback is cancelled after the limit or at most an eighth
of the limit later.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["Watchdog"]

_LOOKS: Final = 8


class Watchdog:
    """Watches the callbacks of one flow. The flow sets ``current`` to the item whose callback runs, or to ``None``.

    If ``current`` does not change for ``limit`` seconds, the watched task is cancelled and ``expired`` is true.
    """

    __slots__ = ("_limit", "_seen", "_since", "_task", "_timer", "current", "expired")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen: object = None
        self._since = 0.0
        self.current: object = None
        self.expired = False

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Watch ``task``, which runs callbacks from now on."""
        self._task = task
        self.expired = False
        self._seen = None
        if self._timer is None:
            self._arm()

    def rest(self) -> None:
        """Note that no callback runs. The timer then ends by itself."""
        self._task = None
        self.current = None

    def close(self) -> None:
        """Stop the timer."""
        self.rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limit / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        task, now = self._task, asyncio.get_running_loop().time()
        if task is None:
            return
        current = self.current
        if current is None or current is not self._seen:
            self._seen = current
            self._since = now
        elif now - self._since >= self._limit and not self.expired:
            self.expired = True
            task.cancel()
        self._arm()
