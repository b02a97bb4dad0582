"""Chooses where the lead reader begins when a publisher starts. The relay should continue without a hole, and flows
that stopped near each other should share the reader.
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

    In the mode ``hold``, the datastore deletes log that the relay holds. So the relay always continues at its tip. An
    empty relay in this mode begins at the beginning of the datastore's log, if that is near. A relay in another mode
    continues at its tip only if the tip is near.
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
    """``end``, or the earliest place of the group of flows that is furthest ahead. Flows of a group are near each
    other. After a takeover all flows are usually near each other, so one reader that begins there serves all of them.
    The reader soon reads the log that was written since the flows stopped.
    """
    between = LogMap().between  # only within one file: the lengths of other files are not known yet
    behind = ((between(place.order, end.order), place) for place in flows)
    soon = [(left, place) for left, place in behind if left is not None and 0 <= left <= SOON_BYTES]
    least = min((left for left, _ in soon), default=0)
    together = (place for left, place in soon if left - least <= NEAR_BYTES)
    return min((end, *together), key=lambda place: place.order)
