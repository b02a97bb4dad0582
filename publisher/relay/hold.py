"""Up to where a datastore may delete its log while a relay holds what follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from caravan.log_map import LogMap
from publisher.relay.files import Stretch
from wormhole.model.position import LogPosition

__all__ = ["hold_point"]


def hold_point(
    oldest: LogPosition,
    end: LogPosition,
    held: Sequence[Stretch],
    log: LogMap,
    *,
    slot_budget: int,
    lose: bool,
) -> LogPosition:
    """The place before which the datastore's log need not be kept.

    ``oldest``: nobody needs anything before it. ``end``: of the log. ``held``: what the relay has, ascending.

    As long as ``slot_budget`` covers the log from ``oldest`` on, that is the place. Otherwise the datastore gives up
    what the relay holds synced and without a hole from ``oldest`` on. With ``lose`` the datastore's disk comes before
    the flow furthest behind: what the relay could not hold, or holds no longer, is given up as well.
    """
    place = oldest
    for one in held:
        if _fits(place, end, log, slot_budget) or one.synced is None:
            break
        if one.synced.order <= place:
            continue
        if one.begin.order > place and not lose:
            break
        place = max(place, one.synced.read_from)
    return place


def _fits(place: LogPosition, end: LogPosition, log: LogMap, budget: int) -> bool:
    kept = log.between(place, end)
    return kept is not None and kept <= budget
