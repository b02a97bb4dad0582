"""Limits the work that a subscriber may cause by what it sends. Pure.

Everything that a subscriber sends takes time of the event loop, which all streams share, also where the protocol allows
it: frames of former epochs, reports, counts. So each stream, over all its connections, may cause a limited amount of
work per second. When it caused more, it is not read for a short time, and its messages wait in its own connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["WORK_PER_S", "Reading", "TokenBucket", "arrival_work"]

WORK_PER_S: Final = 1_000_000
"""Work per second of processor time, in the unit of `PushSession.work`."""
_MESSAGE_WORK: Final = 200  # gRPC's, for a small message: 50 microseconds if many wait, 260 if each wakes it
_BYTES_OF_WORK: Final = 1024  # bytes for a unit of gRPC's work: it takes 0.5 to 1 microsecond for each KiB
_WORK_PER_S: Final = 500_000  # units of all streams together
_MOST_PER_S: Final = 100_000  # units of one stream
_LEAST_PER_S: Final = 10_000  # units of one stream among many: enough for a second's answers of a thousand flows
_AT_ONCE: Final = 20_000  # units of a stream after silence, which delay all others by 20 ms


def arrival_work(size: int) -> float:
    """Work of receiving a message of ``size`` bytes, before it is parsed.

    gRPC does this work, much of it in its own threads. So it cannot be measured for each peer.
    """
    return _MESSAGE_WORK + size / _BYTES_OF_WORK


class TokenBucket:
    """Tokens arrive at a rate. Taking more tokens than are present means waiting.

    ``rate``: tokens per second, 0: no limit. ``most``: the limit of saved tokens. Times are seconds of one monotonic
    clock.
    """

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: Callable[[], float], most: float, now: float) -> None:
        self._rate = rate
        self._most = most
        self._left = most
        self._at = now

    def wait_s(self, tokens: float, now: float) -> float:
        """Take ``tokens``. Returns the seconds to wait until all of them have arrived."""
        rate = self._rate()
        if not rate:
            return 0.0
        self._left = min(self._most, self._left + (now - self._at) * rate) - tokens
        self._at = now
        return max(0.0, -self._left / rate)


class Reading:
    """The work that subscribers may cause by what they send, over all streams. ``streams``: the number of streams."""

    def __init__(self) -> None:
        self.streams = 0

    @property
    def rate(self) -> float:
        """Work per second that one stream may cause."""
        return max(_LEAST_PER_S, min(_MOST_PER_S, _WORK_PER_S / max(1, self.streams)))

    def allowance(self, now: float) -> TokenBucket:
        """The allowance of one stream, over all its connections. Its wait is how long the stream is not read."""
        return TokenBucket(lambda: self.rate, _AT_ONCE, now)
