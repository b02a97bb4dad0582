"""Decides how much of its log a datastore may delete because a relay holds it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from caravan.log_map import LogMap
from publisher.relay.files import Stretch
from wormhole.model.position import LogPosition

__all__ = ["Hold", "HoldPoint"]


class HoldPoint(NamedTuple):
    """``place``: the datastore may delete its log before this place. ``given_up``: whether the relay lacks a part of
    that log."""

    place: LogPosition
    given_up: bool


class Hold:
    """See the module. ``slot_budget``: bytes of log that the datastore may always keep. ``lose``: whether the
    datastore's disk has precedence over the flow furthest behind.
    """

    def __init__(self, slot_budget: int, *, lose: bool) -> None:
        self._slot_budget = slot_budget
        self._lose = lose
        self._least: int | None = None  # the fewest kept bytes since they exceeded the budget

    def point(
        self, oldest: LogPosition, end: LogPosition, held: Sequence[Stretch], log: LogMap, *, behind: bool
    ) -> HoldPoint:
        """Where the log may be deleted. ``oldest``: no flow needs log before it. ``end``: the end of the log. ``held``:
        the relay's stretches, ascending. ``behind``: whether the relay lacks log before the log's end.

        As long as the budget covers the log from ``oldest`` on, ``oldest`` is the place. Otherwise log that the relay
        holds, synced and without a hole, may be deleted too. With ``lose``, the same holds for log that the relay could
        not record because it was full, or has removed. With ``lose``, log that the relay cannot record because its disk
        fails or is too slow may be deleted once the datastore keeps a whole budget more than at least before.
        """
        place = self._recorded(oldest, end, held, log)
        kept = log.between(place, end)
        if kept is None or kept <= self._slot_budget or not behind or not self._lose:
            self._least = None
            return HoldPoint(place, False)
        self._least = kept if self._least is None else min(self._least, kept)
        if kept <= self._least + self._slot_budget or place.file != end.file:
            return HoldPoint(place, False)
        return HoldPoint(LogPosition(end.incarnation, end.file, end.offset - self._slot_budget), True)

    def _recorded(self, oldest: LogPosition, end: LogPosition, held: Sequence[Stretch], log: LogMap) -> LogPosition:
        place = oldest
        for one in held:
            kept = log.between(place, end)
            if (kept is not None and kept <= self._slot_budget) or one.synced is None:
                break
            if one.synced.order <= place:
                continue
            # A change of the log's history leaves a hole in the relay although the relay was not full.
            if one.begin.order > place and (not self._lose or one.begin.order.incarnation != place.incarnation):
                break
            place = max(place, one.synced.read_from)
        return place
