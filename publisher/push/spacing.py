"""Limits how often a flow may be assigned. Pure.

Each assignment raises the flow's epoch, which is a durable write to the store that all flows share.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Spacing"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_FREE: Final = 8
_FORGOTTEN_S: Final = 60.0


class Spacing:
    """The limit of one flow: a few assignments without delay, then one from time to time until an update is
    acknowledged.

    Times are seconds of the monotonic clock. ``until``: the flow is not assigned before this time.
    """

    __slots__ = ("_at", "_given", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._given = 0
        self._at = 0.0

    def given(self, now: float) -> None:
        """Count an assignment to a subscriber."""
        self._given = 1 if now - self._at > _FORGOTTEN_S else self._given + 1
        self._at = now
        if self._given > _FREE:
            self.until = now + min(_LONGEST_S, _FIRST_S * 2.0 ** (self._given - _FREE))

    def acknowledged(self) -> None:
        """Reset the limit, because an update was acknowledged."""
        self._given, self.until = 0, 0.0
