"""One rate for all tasks of a replay, divided among the tasks that push. Pure; the time is an argument.

The driver grants each flow a share, and sends it to the flow's publisher with each renewal of the lease. The publisher
sends it to the flow's task in the answer to each of the task's requests, and reports to the driver which share the task
received last.

The driver reserves for each task the largest share that the task has received or may still receive. The sum of these
never exceeds the rate. So a new task gets its share after the other tasks have received their smaller ones. A share
expires if the task no longer receives it, so the share of a task that died becomes free.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["HEARD_S", "RateShare", "Shares"]

HEARD_S: Final = 1.0
"""Seconds between a task's requests for its share, however slowly it pushes."""
_VALID_S: Final = 5.0  # a share is valid so long after the request for it, and twice as long at the publisher
_BURST_S: Final = 0.25  # the share of this time is the largest burst
_LONGEST_S: Final = 0.5  # the longest wait, because the share may change meanwhile


class Shares:
    """The driver's side. ``rate``: bytes per second of all tasks together; 0: no limit. ``least``: the share of a task
    whose publisher is of an earlier release, which sends no shares. The threads of the leases use it.
    """

    def __init__(self, rate: float, least: float) -> None:
        self.least = least
        self._rate = rate
        self._lock = threading.Lock()
        self._most: dict[str, float] = {}
        """The share that is reserved for each flow's task; flows without a share are left out."""
        self._pushing: set[str] = set()
        self._done: set[str] = set()

    def grant(self, flow: str) -> float | None:
        """The share of the flow's task from now on, for its publisher; ``None``: no limit."""
        if not self._rate:
            return None
        with self._lock:
            if flow not in self._pushing:
                return 0.0
            free = self._rate - sum(most for other, most in self._most.items() if other != flow)
            granted = max(0.0, min(self._rate / len(self._pushing), free))
            self._most[flow] = max(self._most.get(flow, 0.0), granted)
            return granted

    def received(self, flow: str, granted: float | None, heard: float | None, *, pushing: bool) -> bool:
        """The publisher has received the share ``granted``. ``heard``: the share that its task received last; ``None``:
        the publisher sends no shares. ``pushing``: whether a task has the flow open. Returns whether a task has
        opened the flow since the last call, and so needs a share.
        """
        if granted is None:
            return False
        with self._lock:
            if flow in self._done:
                return False
            self._most[flow] = self.least if heard is None else max(granted, heard)
            if not self._most[flow]:
                del self._most[flow]
            came = pushing and flow not in self._pushing
            (self._pushing.add if pushing else self._pushing.discard)(flow)
            return came

    def done(self, flow: str) -> None:
        """Free the share of a flow that has ended."""
        with self._lock:
            self._done.add(flow)
            self._pushing.discard(flow)
            self._most.pop(flow, None)


class RateShare:
    """The task's side: a token bucket that fills with bytes at the task's share. If the bucket is
    overdrawn, the task waits. The task's event loop and the threads of its requests use this object.

    ``limited``: whether there is a limit. If there is, nothing is pushed until a share is known.
    """

    __slots__ = ("_at", "_ends", "_left", "_lock", "_rate", "limited")

    def __init__(self, limited: bool, now: float) -> None:
        self.limited = limited
        self._lock = threading.Lock()
        self._rate = self._left = 0.0
        self._at = self._ends = now

    def heard(self, rate: float, asked: float, now: float) -> None:
        """Use ``rate`` bytes per second from now on. ``asked``: when the request for this rate was sent."""
        with self._lock:
            self._come_in(now)
            self._rate, self._ends = rate, asked + _VALID_S
            self._left = min(self._left, rate * _BURST_S)

    def take(self, size: int) -> None:
        """Take ``size`` bytes from the bucket. They may be sent once :meth:`wait_s` is 0."""
        with self._lock:
            self._left -= size

    def wait_s(self, now: float) -> float:
        """Seconds to wait before the next call; 0 if all taken bytes may be sent."""
        if not self.limited:
            return 0.0
        with self._lock:
            self._come_in(now)
            if self._left >= 0:
                return 0.0
            return min(_LONGEST_S, -self._left / self._rate) if self._rate else _LONGEST_S

    def _come_in(self, now: float) -> None:
        valid = max(0.0, min(now, self._ends) - self._at)
        self._left = min(self._rate * _BURST_S, self._left + valid * self._rate)
        self._at = now
