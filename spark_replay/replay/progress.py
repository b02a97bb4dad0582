"""The progress of a replay: its share, its rates and the time left. Pure; the time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

__all__ = ["Counter", "Pace", "ReplayProgress"]

_SPAN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress at one time. ``done``, ``all``: rows of the archive. ``updates``, ``bytes``: acknowledged so far.
    Rates are per second, over the last seconds. ``left_s``: ``None``: not known yet. ``flows``: finished, and all.
    ``pushing``: unfinished flows that a task has open.
    """

    done: int
    all: int
    updates: int
    bytes: int
    updates_per_s: float
    bytes_per_s: float
    left_s: float | None
    flows: tuple[int, int]
    pushing: int = 0

    @property
    def waiting(self) -> int:
        """The number of flows that wait for a slot, or are paused."""
        finished, flows = self.flows
        return flows - finished - self.pushing

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.done / self.all) if self.all else 1.0


class Counter:
    """A count that only grows, made from a publisher's count that begins at 0 again when the publisher restarts."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = self._last = 0

    def seen(self, value: int) -> int:
        """Set the count to ``value``."""
        if value < self._last:
            self._before += self._last
        self._last = value
        return self._before + value

    @property
    def value(self) -> int:
        """The count over all restarts of the publisher."""
        return self._before + self._last


class Pace:
    """Rates over the last seconds."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int, int]] = deque()

    def look(
        self, now: float, done: int, all_: int, updates: int, size: int, flows: tuple[int, int], pushing: int = 0
    ) -> ReplayProgress:
        """The progress at ``now`` (seconds, monotonic)."""
        seen = self._seen
        seen.append((now, done, updates, size))
        while len(seen) > 2 and seen[0][0] < now - _SPAN_S:
            seen.popleft()
        began, first_done, first_updates, first_size = seen[0]
        span = now - began
        if span <= 0:
            return ReplayProgress(done, all_, updates, size, 0.0, 0.0, None, flows, pushing)
        rows_per_s = (done - first_done) / span
        left = max(0, all_ - done) / rows_per_s if rows_per_s > 0 else None
        return ReplayProgress(
            done,
            all_,
            updates,
            size,
            (updates - first_updates) / span,
            (size - first_size) / span,
            left,
            flows,
            pushing,
        )
