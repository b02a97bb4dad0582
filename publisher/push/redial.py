"""How long to wait before the next try to dial a subscriber, and to assign it a flow again. Pure.

An immediate retry costs the publisher a connection, and for each flow an epoch, which is a durable write to the store
that all flows share. So a subscriber that makes no progress is tried again less and less often.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Redial", "Spacing"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_LONGEST_REFUSED_S: Final = 60.0
_LEFT_FAILURES: Final = 4  # one that left is dialled after 0.4 to 0.8 s: a deregistered one is forgotten before
_STEADY_S: Final = 10.0
_FREE: Final = 8
_FORGOTTEN_S: Final = 60.0


class Redial:
    """How long to wait before the next connection to one subscriber."""

    def __init__(self) -> None:
        self._failures = 0

    def wait_s(self, *, lasted_s: float, acked: bool, refused: bool, left: bool) -> float:
        """The longest wait before the next connection, in seconds. The actual wait is at least half of it.

        ``lasted_s``: how long the last connection lasted after its welcome, 0: without a welcome; ``acked``: whether it
        acknowledged something; ``refused``: whether it broke the protocol or one of its bounds; ``left``: whether the
        subscriber reported that it leaves.
        """
        steady = not refused and (acked or lasted_s >= _STEADY_S)
        self._failures = 0 if steady else self._failures + 1
        failures = max(self._failures, _LEFT_FAILURES) if left else self._failures
        return min(_LONGEST_REFUSED_S if refused else _LONGEST_S, _FIRST_S * 2.0 ** min(failures, 20))


class Spacing:
    """How often one flow may be assigned: a few times at once, and then only from time to time until an update is
    acknowledged.

    Times are seconds of one monotonic clock. ``until``: the flow is not assigned before it.
    """

    __slots__ = ("_at", "_given", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._given = 0
        self._at = 0.0

    def given(self, now: float) -> None:
        """It was given to a subscriber."""
        self._given = 1 if now - self._at > _FORGOTTEN_S else self._given + 1
        self._at = now
        if self._given > _FREE:
            self.until = now + min(_LONGEST_S, _FIRST_S * 2.0 ** (self._given - _FREE))

    def acknowledged(self) -> None:
        """Something of it was acknowledged."""
        self._given, self.until = 0, 0.0
