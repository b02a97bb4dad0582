"""Where the reader furthest ahead begins at a start: so that the relay goes on without a hole, and flows that stopped
together go on at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from caravan.log_map import LogMap
from caravan.plan import NEAR_BYTES, SOON_BYTES
from wormhole.model.position import Datamarker
from wormhole.ports.log_source import LogSource

__all__ = ["common_start", "lead_start"]


def lead_start(source: LogSource) -> Datamarker:
    """At the end of the log, or at that of its relay if this is before.

    A relay whose datastore deletes its log because of it (``hold``) goes on at its tip, however far that is; one that
    is empty begins where the datastore's log does, if this is near. Any other only goes on at a tip that is near.
    """
    latest, status = source.latest(), source.status()
    relay = status.relay
    if relay is None or relay.mode == "off":
        return latest
    holds = relay.mode == "hold"
    start = relay.tip
    if start is None:
        start = source.earliest() if holds else latest
    between = LogMap(status.files).between(start.order, latest.order)
    if between is None or between <= 0:
        return latest
    return start if between <= SOON_BYTES or (holds and relay.tip is not None) else latest


def common_start(end: Datamarker, flows: Iterable[Datamarker]) -> Datamarker:
    """``end``, or the earliest place of the flows that are furthest ahead and near each other, as all are after a
    takeover: one reader that begins there serves them from its first moment, and none has to be opened beside it. How
    much was written since they stopped does not matter, as long as it is soon read.
    """
    between = LogMap().between  # within one file: how long the others are is not known yet
    behind = ((between(place.order, end.order), place) for place in flows)
    soon = [(left, place) for left, place in behind if left is not None and 0 <= left <= SOON_BYTES]
    least = min((left for left, _ in soon), default=0)
    together = (place for left, place in soon if left - least <= NEAR_BYTES)
    return min((end, *together), key=lambda place: place.order)
