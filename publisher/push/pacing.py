"""When to write, and when to read: pure.

Sending every update at once costs a write per update and subscriber; the event loop then becomes the queue, and latency
grows with the number of streams. So the first update after a pause goes at once, and while updates keep coming each
stream gets one write per gather interval.

What a subscriber sends costs the event loop time that all streams share, also where the protocol allows it: frames of
epochs that are over, reports, counts. So each stream, over all its connections, may cause so much work in a second,
and is not read for a moment when it caused more: what it sends then waits in its own connection.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Allowance", "Reading", "gather_interval"]

_LEAST_S = 0.002  # a lone stream: half of it is added latency on average, and below it reading costs more than sending
_PER_STREAM_S = 0.00015  # about what building and writing one small message takes
_MOST_S = 0.008


def gather_interval(streams: int, loop_lag_s: float) -> float:
    """Seconds between two writes of a busy stream: 0-8 ms, more with more streams and with a late event loop."""
    if streams == 0:
        return _MOST_S
    return min(_MOST_S, _LEAST_S + _PER_STREAM_S * streams + loop_lag_s)


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
