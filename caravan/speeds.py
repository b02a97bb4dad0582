"""Computes the target read rate of each caravan from measured rates and caps. Pure (design section 8).

A caravan that catches up reads at 1.25 to 2 times the rate of the lead, and faster the further it is behind. At a lower
rate it would hardly arrive. At a higher rate it would take capacity from the lead without need. If the lead reads
little, these rates are too low, so :class:`Pace` determines a rate that it may read in any case. That rate falls while
flows of the lead are served late.

Under the cap of all caravans together the lead comes first: its own rate, and a quarter more for its next burst, is
left to it. A tenth of the cap is for caravans that catch up, however busy the lead is, so that each of them arrives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["FASTEST", "SLOWEST", "Pace", "Speeds", "shares", "speeds"]

MIB: Final = 1 << 20
SLOWEST: Final = 1.25
FASTEST: Final = 2.0
"""The fastest rate of catching up, as a multiple of the lead's rate (from the paper)."""

_FAR: Final = 256 * MIB
"""From this distance on a caravan reads at the fastest rate."""
_LEFT: Final = 0.1
"""The part of the common cap that the lead leaves to the others, and that is left to an idle lead."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Target rates in bytes per second; ``math.inf``: without a limit. ``others``: by caravan number."""

    lead: float
    others: dict[int, float]


def speeds(
    lead_rate: float, behind: Mapping[int, int | None], *, read_rate: float, total_read_rate: float, pace: float
) -> Speeds:
    """Target rates of the lead and of the caravans behind it.

    ``lead_rate``: bytes per second that the lead reads now. ``behind``: bytes of log from each other caravan to the
    lead, ``None`` if unknown. ``read_rate`` and ``total_read_rate``: the caps, 0 = none. ``pace``: the rate that a
    caravan may read however idle the lead is.
    """
    one = read_rate or math.inf
    total = total_read_rate or math.inf
    wants = {number: min(one, max(_factor(distance) * lead_rate, pace)) for number, distance in behind.items()}
    if not wants or total == math.inf:
        return Speeds(min(one, total), wants)
    for_lead = min(max(SLOWEST * lead_rate, _LEFT * total), (1 - _LEFT) * total)
    return Speeds(min(one, (1 - _LEFT) * total), shares(wants, total - for_lead))


def _factor(distance: int | None) -> float:
    part = 1.0 if distance is None else min(1.0, max(0, distance) / _FAR)
    return SLOWEST + (FASTEST - SLOWEST) * part


def shares(wants: Mapping[int, float], available: float) -> dict[int, float]:
    """Divide ``available``. No caravan gets more than it wants, and the rest is divided among the others in equal
    parts.
    """
    given: dict[int, float] = {}
    left = available
    for place, (number, want) in enumerate(sorted(wants.items(), key=lambda item: (item[1], item[0]))):
        given[number] = min(want, left / (len(wants) - place))
        left -= given[number]
    return given


class Pace:
    """The rate that a caravan which catches up may read however idle the lead is (``rate``, bytes per second).

    It rises slowly while the event loop is on time. It falls at once when the loop is late and the lead has flows,
    which notice it. A busy publisher reads a backlog at 4 MiB/s for each caravan, and a publisher with spare processor
    time reads ever faster. If the lead has no flows, it needs nothing.
    """

    LEAST: Final = 4.0 * MIB
    MOST: Final = 1024.0 * MIB
    LATE_S: Final = 0.003

    def __init__(self) -> None:
        self.rate = self.MOST

    def adjust(self, late_s: float, lead_has_flows: bool) -> None:
        """Adjust the rate. Called ten times a second. ``late_s``: how late the event loop is."""
        if not lead_has_flows:
            self.rate = self.MOST
        elif late_s > self.LATE_S:
            self.rate = max(self.LEAST, self.rate * 0.7)
        else:
            self.rate = min(self.MOST, self.rate * 1.1)
