"""Whether a publisher makes progress: alive is not enough, a process can be up and stuck.

A canary for its log: the log's end moved and the reader did not (:class:`~publisher.flows.progress.Progress`). That a
subscriber is slow or away is not the publisher's readiness; its lag reports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from publisher.publisher import Publisher

__all__ = ["STUCK_S", "Readiness", "readiness"]

STUCK_S: Final = 15.0
"""Nothing was read of a growing log for so long: the publisher is stuck.

Opening a log anew after a fault takes a second or two.
"""


@dataclass(frozen=True, slots=True)
class Readiness:
    """``reasons``: one sentence for each thing that is missing, with what to look at; empty when ready."""

    reasons: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.reasons


def readiness(publisher: Publisher, now: float) -> Readiness:
    """What keeps the publisher from doing its work. ``now``: seconds of the monotonic clock."""
    reasons = []
    if publisher.ownership.waits:
        reasons.append(f"it waits for its registration and serves nothing: {publisher.ownership.waits}")
    elif not publisher.applications.known.is_set():
        reasons.append("it is starting: what is configured was not read yet")
    stuck = publisher.progress.stuck_s(now)
    if stuck is not None and stuck >= STUCK_S:
        reasons.append(_why_stuck(publisher, stuck))
    elif publisher.fleet.lead is None and publisher.fleet.trouble:
        reasons.append(f"the log cannot be read: {publisher.fleet.trouble}")
    if not publisher.ownership.may_send():
        reasons.append(f"it may not act for its flows: {publisher.ownership.why_silent()}")
    if publisher.markers.problem:
        reasons.append(f"datamarkers cannot be stored: {publisher.markers.problem}")
    return Readiness(tuple(reasons))


def _why_stuck(publisher: Publisher, stuck: float) -> str:
    served, lead = publisher.served, publisher.fleet.lead
    log = f"{served.dataset.name}/{served.copy}/{served.log}"
    if lead is None:
        cause = publisher.fleet.trouble or "no reader could be opened"
        return f"nobody reads the log {log} for {stuck:.0f} s: {cause}"
    unread = publisher.log_watch.behind(lead.buffer.place)
    more = "" if unread is None else f", {unread} bytes are not read"
    return (
        f"the log {log} grows and nothing of it was read for {stuck:.0f} s: the reader is at "
        f"{lead.buffer.place}{more}. "
        "Next: see that its disk or server answers (`wormholectl doctor`), then restart this publisher; nothing is "
        "lost by that"
    )
