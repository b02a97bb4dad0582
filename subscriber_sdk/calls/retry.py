"""Decides whether and when a failed callback is tried again. Pure: random numbers come as an argument."""

from __future__ import annotations

from collections.abc import Callable

from subscriber_sdk.options.subscriber_options import RetryPolicy
from wormhole.model.position import LogPosition
from wormhole.ports.dead_letters import UpdatePlace

__all__ = ["Place", "Retry"]

Place = tuple[LogPosition, int]
"""Where a callback failed: the place of its transaction and the update's index in it."""


class Retry:
    """Counts the failures of one shard since its last acknowledgement. The epochs of the shard share the count, because
    a resend in a new epoch must not reset it.

    ``chance``: random numbers from 0 to 1.
    """

    __slots__ = ("_chance", "_furthest", "_policy", "failures", "postponed", "singly_until")

    def __init__(self, policy: RetryPolicy, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self._furthest: Place | None = None
        self.failures = 0
        self.postponed = 0
        """The number of temporary failures (an unavailable target) since the last acknowledgement."""
        self.singly_until: UpdatePlace | None = None
        """Up to this place ``on_updates`` gets one update at a time, because one of the updates before it fails. The
        epochs of the shard share this place too."""

    @property
    def attempts(self) -> int:
        """The most calls of one callback, including the first call."""
        return self._policy.attempts

    def fresh(self) -> Retry:
        """A separate count with the same policy, for failures without an update."""
        return Retry(self._policy, self._chance)

    def failed(self, place: Place | None) -> bool:
        """Count a failure at ``place`` (``None``: not at an update). Returns whether another try follows.

        A failure behind the places of all earlier failures begins a new count, because the earlier callbacks have
        succeeded since.
        """
        if place is not None and (self._furthest is None or place > self._furthest):
            if self._furthest is not None:
                self.failures = 0
            self._furthest = place
        self.failures += 1
        return self.failures < self._policy.attempts

    def reset(self) -> None:
        """Set the counts to zero, because a datamarker was acknowledged."""
        self.failures = self.postponed = 0
        self._furthest = None

    def postpone(self) -> float:
        """Seconds before the next try after a temporary failure, which does not count as an attempt."""
        self.postponed += 1
        return self._policy.wait(self.postponed, self._chance())

    def wait(self) -> float:
        """Seconds before the next try after a counted failure."""
        return self._policy.wait(self.failures, self._chance())
