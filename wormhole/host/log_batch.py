"""One log line about many flows, instead of one for each.

A publisher that starts assigns a thousand flows, and a caravan that ends leaves as many: a line for each would hide
everything else. The first event is logged at once. The more events follow, the longer they are collected into one line.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

__all__ = ["BatchedLog"]

_SOON_S: Final = 0.1  # what happens together comes together
_LEAST_S: Final = 1.0
_MOST_S: Final = 60.0
_NAMES: Final = 8
_KINDS: Final = 64


class BatchedLog:
    """``say`` is called with a whole line. All methods are called on the event loop; the owner calls :meth:`flush` at
    its end.

    A new kind of event is logged at once. While more follow, a line of each kind is logged after 2, 4, 8 ... 60
    seconds. At most 64 kinds wait: kinds may contain names that peers choose.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._waiting: dict[str, list[str]] = {}
        self._more: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._said_at = -math.inf
        self._pause = _LEAST_S

    def add(self, what: str, name: str, detail: str = "") -> None:
        """``what`` happened to ``name``; of several names the first one's ``detail`` is logged."""
        if what not in self._waiting and len(self._waiting) >= _KINDS:
            self.flush()
        names = self._waiting.setdefault(what, [])
        if len(names) < _NAMES:
            names.append(f"{name} {detail}".rstrip() if not names else name)
        else:
            self._more[what] = self._more.get(what, 0) + 1
        if self._timer is None:
            loop = asyncio.get_running_loop()
            quiet = loop.time() - self._said_at
            if quiet > 2 * self._pause:
                self._pause = _LEAST_S
            self._timer = loop.call_later(max(_SOON_S, self._pause - quiet), self.flush)

    def flush(self) -> None:
        """Log what waits."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for what, names in self._waiting.items():
            more = self._more.get(what, 0)
            count = "" if len(names) == 1 else f" ({len(names) + more})"
            self._say(f"{what}{count}: {', '.join(names)}{f' and {more} more' if more else ''}")
        self._waiting.clear()
        self._more.clear()
        self._said_at = asyncio.get_running_loop().time()
        self._pause = min(_MOST_S, 2 * self._pause)
