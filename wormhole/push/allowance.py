"""How much work a subscriber may cause by what it sends. Pure.

What a subscriber sends costs the event loop time that all streams share, also where the protocol allows it: frames of
epochs that are over, reports, counts. So each stream, over all its connections, may cause so much work in a second. It
is not read for a moment when it caused more: what it sends then waits in its own connection.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Allowance", "Reading"]

# Work as `PushSession.work` counts it: about a microsecond each.
_WORK_PER_S: Final = 500_000  # of all streams together
_MOST_PER_S: Final = 100_000  # of one
_LEAST_PER_S: Final = 10_000  # of one among many: what a thousand flows answer in a second
_AT_ONCE: Final = 20_000  # what a stream that was quiet may add to the latency of all others: 20 ms


class Reading:
    """What all streams share. ``streams``: how many there are."""

    def __init__(self) -> None:
        self.streams = 0

    @property
    def rate(self) -> float:
        """Work per second that one stream may cause."""
        return max(_LEAST_PER_S, min(_MOST_PER_S, _WORK_PER_S / max(1, self.streams)))


class Allowance:
    """What one stream may cause just now, over all its connections. Times are seconds of one monotonic clock."""

    __slots__ = ("_at", "_left", "_reading")

    def __init__(self, reading: Reading, now: float) -> None:
        self._reading = reading
        self._left = float(_AT_ONCE)
        self._at = now

    def wait_s(self, work: int, now: float) -> float:
        """How long not to read, after ``work`` was done for what came."""
        rate = self._reading.rate
        self._left = min(_AT_ONCE, self._left + (now - self._at) * rate) - work
        self._at = now
        return max(0.0, -self._left / rate)
