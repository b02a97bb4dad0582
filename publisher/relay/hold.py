"""Up to where a datastore may delete its log while a relay holds what follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from caravan.log_map import LogMap
from publisher.relay.files import Stretch
from wormhole.model.position import LogPosition

__all__ = ["Hold", "HoldPoint"]


class HoldPoint(NamedTuple):
    """``place``: the datastore's log need not be kept before it. ``given_up``: the relay does not have all of that."""

    place: LogPosition
    given_up: bool


class Hold:
    """``slot_budget``: bytes of log that the datastore may keep in any case. ``lose``: its disk comes before the flow
    furthest behind.
    """

    def __init__(self, slot_budget: int, *, lose: bool) -> None:
        self._slot_budget = slot_budget
        self._lose = lose
        self._least: int | None = None  # bytes that the datastore had to keep, since that was more than the budget

    def point(
        self, oldest: LogPosition, end: LogPosition, held: Sequence[Stretch], log: LogMap, *, behind: bool
    ) -> HoldPoint:
        """``oldest``: nobody needs anything before it. ``end``: of the log. ``held``: what the relay has, ascending.
        ``behind``: it lacks what lies before its log's end.

        As long as the budget covers the log from ``oldest`` on, that is the place. Otherwise the datastore gives up
        what the relay holds synced and without a hole from ``oldest`` on. With ``lose`` what the relay could not hold,
        or holds no longer, is given up as well. So is what it cannot take, because its disk fails or is slower than the
        log: once the datastore keeps a whole budget more than before.
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
            # Where the log went on in another history the relay has a hole, though it had room.
            if one.begin.order > place and (not self._lose or one.begin.order.incarnation != place.incarnation):
                break
            place = max(place, one.synced.read_from)
        return place
