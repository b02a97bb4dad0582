"""Reading caps: how much log may be read per second, by one caravan and by all together."""

from __future__ import annotations

import sys

__all__ = ["RateCap"]

_PIECE_S = 0.01  # what one read may ask for, in seconds of the rate
_REFILL = 0.95
"""Part of the rate that flows back.

The rest pays for what is saved up and for reads under way, so that *no* second exceeds the rate.
"""


class RateCap:
    """A token bucket over bytes. Pure: time (seconds, monotonic) is an argument. ``rate`` 0 means no cap.

    A reader asks for at most :attr:`piece` bytes, waits for :meth:`delay`, takes them and gives back what it did not
    read (or pays for what it read more: one update larger than a piece is read whole, and the debt delays the next
    read).
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
        """The most that one read may ask for, bytes."""
        return max(1, int(self._rate * _PIECE_S)) if self._rate else sys.maxsize

    def change(self, rate: float, now: float) -> None:
        """From ``now`` on another rate holds."""
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
        """``size`` bytes are read from now on; a negative size gives back what was not read."""
        if self._rate:
            self._refill(now)
            self._tokens = min(self._tokens - size, 2.0 * self.piece)

    def _refill(self, now: float) -> None:
        if self._at is not None and self._rate:
            self._tokens = min(2.0 * self.piece, self._tokens + (now - self._at) * self._rate * _REFILL)
        self._at = now
