"""Limits the bytes of log per second that one caravan, or all caravans together, may read."""

from __future__ import annotations

import sys

__all__ = ["RateCap"]

_PIECE_S = 0.01  # limit of one read, in seconds at the rate
_REFILL = 0.95
"""The part of the rate that is refilled.

The rest is for saved bytes and for reads in progress, so that *no* second exceeds the rate.
"""


class RateCap:
    """A token bucket over bytes. Pure: time (seconds, monotonic) is an argument. ``rate`` 0 means no cap.

    A reader requests at most :attr:`piece` bytes, waits for :meth:`delay`, takes them and gives back the bytes that it
    did not read. If it read more, it pays for them: an update larger than a piece is read as a whole, and the debt
    delays the next read.
    """

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._tokens = 2.0 * self.piece if rate else 0.0
        self._at: float | None = None

    @property
    def rate(self) -> float:
        """Bytes per second, 0 = no cap."""
        return self._rate

    @property
    def piece(self) -> int:
        """The limit in bytes of one read."""
        return max(1, int(self._rate * _PIECE_S)) if self._rate else sys.maxsize

    def change(self, rate: float, now: float) -> None:
        """Use another rate from ``now`` on."""
        if rate != self._rate:
            self._refill(now)
            self._rate = rate
            self._tokens = min(self._tokens, 2.0 * self.piece) if rate else 0.0

    def delay(self, size: int, now: float) -> float:
        """Seconds until ``size`` bytes (at most twice the :attr:`piece`) may be taken."""
        if not self._rate:
            return 0.0
        self._refill(now)
        missing = size - self._tokens
        # Less than a thousandth of a byte is rounding, and no timer could wait for it.
        return missing / (self._rate * _REFILL) if missing > 1e-3 else 0.0

    def take(self, size: int, now: float) -> None:
        """Take ``size`` bytes. A negative size gives back bytes that were not read."""
        if self._rate:
            self._refill(now)
            self._tokens = min(self._tokens - size, 2.0 * self.piece)

    def _refill(self, now: float) -> None:
        if self._at is not None and self._rate:
            self._tokens = min(2.0 * self.piece, self._tokens + (now - self._at) * self._rate * _REFILL)
        self._at = now
