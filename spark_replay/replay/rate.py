"""How fast a task may push: a token bucket. Pure, the time is an argument."""

from __future__ import annotations

from typing import Final

__all__ = ["Bucket"]

_BURST_S: Final = 0.25


class Bucket:
    """``rate``: bytes per second, 0: as fast as it goes.

    A body larger than the bucket is let through and paid for afterwards.
    """

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._left = rate * _BURST_S
        self._at = now

    def wait(self, size: int, now: float) -> float:
        """Take ``size`` bytes; the seconds to wait before they are sent."""
        if not self._rate:
            return 0.0
        self._left = min(self._rate * _BURST_S, self._left + (now - self._at) * self._rate)
        self._at = now
        waits = max(0.0, -self._left / self._rate)
        self._left -= size
        return waits
