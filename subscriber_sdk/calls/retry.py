"""When a failed callback is tried again. Pure: random numbers come as an argument."""

from __future__ import annotations

from collections.abc import Callable

from subscriber_sdk.options.subscriber_options import RetryPolicy
from wormhole.model.position import LogPosition
from wormhole.ports.dead_letters import UpdatePlace

__all__ = ["Place", "Retry"]

Place = tuple[LogPosition, int]
"""Where a callback failed: the place of its transaction and the update's index in it."""


class Retry:
    """Failures of one shard since its last acknowledgement. Outlives an epoch: a resend must not reset the count.

    ``chance``: random numbers from 0 to 1.
    """

    __slots__ = ("_chance", "_furthest", "_policy", "failures", "postponed", "singly_until")

    def __init__(self, policy: RetryPolicy, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self._furthest: Place | None = None
        self.failures = 0
        self.postponed = 0
        """Failures that pass by themselves, since the last acknowledgement."""
        self.singly_until: UpdatePlace | None = None
        """Up to this place ``on_updates`` gets one update at a time, because one of the updates before it fails.

        It outlives an epoch too.
        """

    @property
    def attempts(self) -> int:
        """How often one callback is called, the first time included."""
        return self._policy.attempts

    def fresh(self) -> Retry:
        """A separate count with the same policy, for failures without an update."""
        return Retry(self._policy, self._chance)

    def failed(self, place: Place | None) -> bool:
        """Count a failure at ``place`` (``None``: not at an update). Returns whether another try follows.

        A failure after the places of all earlier failures begins a new count, because what failed before has succeeded
        since.
        """
        if place is not None and (self._furthest is None or place > self._furthest):
            if self._furthest is not None:
                self.failures = 0
            self._furthest = place
        self.failures += 1
        return self.failures < self._policy.attempts

    def reset(self) -> None:
        """A datamarker was acknowledged: past failures are over."""
        self.failures = self.postponed = 0
        self._furthest = None

    def postpone(self) -> float:
        """Seconds before the next try after a failure that passes by itself, and so is not counted."""
        self.postponed += 1
        return self._policy.wait(self.postponed, self._chance())

    def wait(self) -> float:
        """Seconds before the next try."""
        return self._policy.wait(self.failures, self._chance())
