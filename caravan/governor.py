"""Divides buffer memory and read rates among the caravans over one log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from caravan.caravan import Caravan
from caravan.log_map import LogMap
from caravan.plan import CaravanView, lead
from caravan.rate import RateCap
from caravan.speeds import Pace, speeds

__all__ = ["Governor", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Configured bounds. Rates in bytes of log per second, 0 = no cap; ``buffer_bytes`` is for all change buffers
    together.
    """

    caravans: int = 4
    read_rate: float = 0.0
    total_read_rate: float = 0.0
    buffer_bytes: int = 64 << 20
    read_bytes: int = 512 << 10


class Governor:
    """Governs ``caravans``, which the fleet fills.

    Memory: each caravan may use memory that no other uses, and is guaranteed its share. Half of the budget is the
    lead's share; the rest is divided among the others. When caravans below their share need memory, those above theirs
    give it back: first segments that no flow needs, and then the flows furthest behind leave.
    """

    def __init__(self, limits: Limits, caravans: Mapping[int, Caravan]) -> None:
        self.limits = limits
        self.log_map = LogMap()
        self.total_cap = RateCap(limits.total_read_rate)
        self.pace = Pace()
        self._caravans = caravans

    @property
    def lead(self) -> Caravan | None:
        """The caravan furthest ahead."""
        view = lead([CaravanView(c.number, c.buffer.start, c.buffer.place, 0) for c in self._all()])
        return None if view is None else self._caravans[view.number]

    def is_lead(self, caravan: Caravan) -> bool:
        """Whether the caravan is the one furthest ahead."""
        return len(self._caravans) == 1 or self.lead is caravan

    # -- memory

    def used(self) -> int:
        """Bytes in all change buffers."""
        return sum(c.buffer.size for c in self._all())

    def share(self, caravan: Caravan) -> int:
        """Bytes that are guaranteed to the caravan's buffer."""
        others = len(self._caravans) - 1
        half = self.limits.buffer_bytes // 2
        if others <= 0:
            return self.limits.buffer_bytes
        return half if self.is_lead(caravan) else half // others

    def budget(self, caravan: Caravan) -> int:
        """Bytes that the caravan's buffer may take now."""
        return max(self.share(caravan), self.limits.buffer_bytes - self.used() + caravan.buffer.size)

    def reclaim(self, reader: Caravan) -> None:
        """Make other caravans give memory back after ``reader`` read a segment, if it is within its share and all
        together exceed the budget.

        A caravan above its own share waits, or leaves flows behind, before its next read.
        """
        excess = self.used() - self.limits.buffer_bytes
        if excess <= 0 or reader.buffer.size > self.share(reader):
            return
        over = sorted(((c.buffer.size - self.share(c), -c.number) for c in self._all()), reverse=True)
        for more, number in over:
            if more <= 0 or excess <= 0:
                return
            excess -= self._caravans[-number].shrink(min(more, excess))

    # -- speed

    def kept_for_lead(self, caravan: Caravan) -> int:
        """Bytes of the common cap that the caravan must leave, so that the lead never waits for the others."""
        return 0 if not self.limits.total_read_rate or self.is_lead(caravan) else self.total_cap.piece

    def adjust(self, late_s: float, now: float) -> None:
        """Set every caravan's target rate. Called ten times a second; ``late_s``: how late the event loop is."""
        head = self.lead
        if head is None:
            return
        self.pace.adjust(late_s, bool(head.flows))
        others = [c for c in self._all() if c is not head]
        targets = speeds(
            head.bytes_per_s(now),
            {c.number: self.log_map.between(c.buffer.place, head.buffer.place) for c in others},
            read_rate=self.limits.read_rate,
            total_read_rate=self.limits.total_read_rate,
            pace=self.pace.rate,
        )
        head.aim(targets.lead, now)
        for caravan in others:
            caravan.aim(targets.others[caravan.number], now)

    def _all(self) -> Iterable[Caravan]:
        return self._caravans.values()
