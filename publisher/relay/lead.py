"""Where the reader furthest ahead begins at a start, so that the relay continues without a hole, and flows that stopped
together continue at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from caravan.log_map import LogMap
from caravan.plan import NEAR_BYTES, SOON_BYTES
from wormhole.model.position import Datamarker
from wormhole.ports.log_source import LogSource

__all__ = ["common_start", "lead_start"]


def lead_start(source: LogSource) -> Datamarker:
    """The end of the log, or the end of its relay if that is earlier.

    A relay in the mode ``hold``, because of which the datastore deletes its log, continues at its tip, however far
    behind that is. An empty relay in this mode begins where the datastore's log begins, if that is near. A relay in
    another mode continues at its tip only if that is near.
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
    """``end``, or the earliest place of the flows that are furthest ahead and near each other. After a takeover all
    flows are near each other: one reader that begins there serves them at once, and no other has to be opened. The log
    that was written since they stopped does not matter, as long as it is read soon.
    """
    between = LogMap().between  # within one file: the lengths of the others are not known yet
    behind = ((between(place.order, end.order), place) for place in flows)
    soon = [(left, place) for left, place in behind if left is not None and 0 <= left <= SOON_BYTES]
    least = min((left for left, _ in soon), default=0)
    together = (place for left, place in soon if left - least <= NEAR_BYTES)
    return min((end, *together), key=lambda place: place.order)
