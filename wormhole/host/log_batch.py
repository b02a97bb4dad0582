"""Collects events of many flows into one log line.

A publisher that starts assigns a thousand flows, and a caravan that ends leaves as many: a line for each would hide
everything else. The first event is logged at once. The more events follow, the longer they are collected into one line,
which contains the age of the first event.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

__all__ = ["BatchedLog"]

_SOON_S: Final = 0.1  # events that are close together are logged in one line
_LEAST_S: Final = 1.0
_MOST_S: Final = 60.0
_NAMES: Final = 8
_KINDS: Final = 64
_OLD_S: Final = 0.5


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
        self._first_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._said_at = -math.inf
        self._pause = _LEAST_S

    def add(self, what: str, name: str, detail: str = "") -> None:
        """Record that ``what`` happened to ``name``. If several names are logged together, only the first one's
        ``detail`` is.
        """
        if what not in self._waiting and len(self._waiting) >= _KINDS:
            self.flush()
        loop = asyncio.get_running_loop()
        self._first_at.setdefault(what, loop.time())
        names = self._waiting.setdefault(what, [])
        if len(names) < _NAMES:
            names.append(f"{name} {detail}".rstrip() if not names else name)
        else:
            self._more[what] = self._more.get(what, 0) + 1
        if self._timer is None:
            quiet = loop.time() - self._said_at
            if quiet > 2 * self._pause:
                self._pause = _LEAST_S
            self._timer = loop.call_later(max(_SOON_S, self._pause - quiet), self.flush)

    def flush(self) -> None:
        """Log the waiting events."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        now = asyncio.get_running_loop().time()
        for what, names in self._waiting.items():
            more, ago_s = self._more.get(what, 0), now - self._first_at[what]
            count = "" if len(names) == 1 else str(len(names) + more)
            ago = "" if ago_s < _OLD_S else f"{'the first ' if count else ''}{ago_s:.1f} s ago"
            about = ", ".join(filter(None, (count, ago)))
            self._say(
                f"{what}{f' ({about})' if about else ''}: {', '.join(names)}{f' and {more} more' if more else ''}"
            )
        self._waiting.clear()
        self._more.clear()
        self._first_at.clear()
        self._said_at = now
        self._pause = min(_MOST_S, 2 * self._pause)
