"""Where the reader furthest ahead begins at a start, so that the relay goes on without a hole."""

from __future__ import annotations

from typing import Final

from caravan.log_map import LogMap
from wormhole.model.position import Datamarker
from wormhole.ports.log_source import LogSource

__all__ = ["lead_start"]

_NEAR_BYTES: Final = 64 << 20


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
    return start if between <= _NEAR_BYTES or (holds and relay.tip is not None) else latest
