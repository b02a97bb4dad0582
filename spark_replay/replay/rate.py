"""One rate for all tasks of a replay, divided among those that push. Pure, the time is an argument.

The driver grants each flow a share and says so to the flow's publisher with each renewal; the publisher tells the
flow's task with each of its requests, and reports to the driver what the task heard last. What a task may use is the
most of what it heard and what it may still hear: the sum of that never exceeds the rate, so a task that comes gets its
share once the others know of their smaller ones. A share lapses when the task does not hear of it any more, so that of
a task that died is free again.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["HEARD_S", "RateShare", "Shares"]

HEARD_S: Final = 1.0
"""A task asks for its share so often, in seconds, however slowly it pushes."""
_VALID_S: Final = 5.0  # from the request on whose answer told it; the publisher counts it for twice as long
_BURST_S: Final = 0.25  # a burst takes at most the share of this time
_LONGEST_S: Final = 0.5  # the share may be another one meanwhile


class Shares:
    """The driver's side. ``rate``: bytes per second of all tasks together, 0: no limit. ``least``: of a task whose
    publisher is of an earlier release, which tells no shares. Used by the threads of the leases.
    """

    def __init__(self, rate: float, least: float) -> None:
        self.least = least
        self._rate = rate
        self._lock = threading.Lock()
        self._most: dict[str, float] = {}
        """What a flow's task may use; without those that may use nothing."""
        self._pushing: set[str] = set()
        self._done: set[str] = set()

    def grant(self, flow: str) -> float | None:
        """What the flow's task may push from now on, to be told to its publisher; ``None``: all it can."""
        if not self._rate:
            return None
        with self._lock:
            if flow not in self._pushing:
                return 0.0
            free = self._rate - sum(most for other, most in self._most.items() if other != flow)
            granted = max(0.0, min(self._rate / len(self._pushing), free))
            self._most[flow] = max(self._most.get(flow, 0.0), granted)
            return granted

    def told(self, flow: str, granted: float | None, heard: float | None, *, pushing: bool) -> bool:
        """The publisher knows what was ``granted``; its task heard of ``heard`` last, ``None``: the publisher tells
        nothing. ``pushing``: a task has the flow open. Returns whether it has it only now, and so gets a share.
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
        """Nothing of the flow is pushed any more."""
        with self._lock:
            self._done.add(flow)
            self._pushing.discard(flow)
            self._most.pop(flow, None)


class RateShare:
    """A task's side, used by its loop and by the threads of its requests: bytes come in at its share, and what takes
    more of them than there are has to wait. ``limited``: whether there is a limit; then nothing is pushed until a share
    is known.
    """

    __slots__ = ("_at", "_ends", "_left", "_lock", "_rate", "limited")

    def __init__(self, limited: bool, now: float) -> None:
        self.limited = limited
        self._lock = threading.Lock()
        self._rate = self._left = 0.0
        self._at = self._ends = now

    def heard(self, rate: float, asked: float, now: float) -> None:
        """It is ``rate`` bytes per second from now on, as the answer to what was asked at ``asked`` says."""
        with self._lock:
            self._come_in(now)
            self._rate, self._ends = rate, asked + _VALID_S
            self._left = min(self._left, rate * _BURST_S)

    def take(self, size: int) -> None:
        """So many bytes are to be sent once :meth:`wait_s` is 0."""
        with self._lock:
            self._left -= size

    def wait_s(self, now: float) -> float:
        """For how long to wait before the next look whether all that was taken has come in; 0: it has."""
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
