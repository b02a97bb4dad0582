"""Computes how long to wait before the next attempt to reach a peer. Pure.

Each attempt costs the other side a connection. So a peer that makes no progress is dialled at growing intervals.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Redial"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_LONGEST_REFUSED_S: Final = 60.0
_LEFT_FAILURES: Final = 4  # a peer that left is dialled after 0.4 to 0.8 s, unless deregistered before
_STEADY_S: Final = 10.0


class Redial:
    """The waits between connections to one peer."""

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
