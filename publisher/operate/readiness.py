"""Checks whether a publisher is ready, which means that it makes progress. A process that runs may still be stuck.

A publisher is not ready if the log grows and its reader does not move (:class:`~publisher.flows.progress.Progress`). A
slow or absent subscriber does not make a publisher unready. The lag shows such a subscriber.

A standby is ready while another publisher owns the log, because otherwise a rolling update would never end. A standby
is not ready while the log has no owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from publisher.flows.applications import Applications, Served
from publisher.flows.ownership import Ownership
from publisher.flows.records import FlowRecords
from publisher.flows.tailed_log import TailedLog
from wormhole.coordination.standbys import owner_name
from wormhole.host.clock import Clock
from wormhole.wire.conditions import STUCK_S

__all__ = ["Readiness", "ReadinessCheck"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """The result of the check. ``reasons``: one sentence for each problem, with the next step; empty if ready.

    ``stands_by``: for a standby, the owner's name and what prevents a takeover; empty unless another publisher owns the
    log.
    """

    reasons: tuple[str, ...]
    stands_by: str = ""

    @property
    def ready(self) -> bool:
        """Whether the publisher is ready."""
        return not self.reasons


class ReadinessCheck:
    """Finds what prevents the publisher from doing its work."""

    def __init__(
        self,
        served: Served,
        ownership: Ownership,
        applications: Applications,
        log: TailedLog,
        records: FlowRecords,
        clock: Clock,
    ) -> None:
        self._served = served
        self._ownership = ownership
        self._applications = applications
        self._tailed = log
        self._records = records
        self._clock = clock

    def found(self) -> Readiness:
        """The publisher's readiness now."""
        return self.at(self._clock.monotonic())

    def at(self, now: float) -> Readiness:
        """The state at ``now``, in seconds of the monotonic clock."""
        reasons: list[str] = []
        ownership, log, markers = self._ownership, self._tailed, self._records.markers
        stands_by = str(ownership.standby) if owner_name(ownership.owners) else ""
        if not stands_by:
            reasons += self._why_not_serving()
        stuck = log.progress.stuck_s(now)
        if stuck is not None and stuck >= STUCK_S:
            reasons.append(self._why_stuck(stuck))
        elif log.fleet.lead is None and log.unreadable:
            reasons.append(str(log.unreadable))
        if not ownership.standby and not ownership.may_send():
            reasons.append(f"it may not act for its flows: {ownership.why_silent()}")
        if markers.problem:
            reasons.append(f"datamarkers cannot be stored: {markers.problem}")
        return Readiness(tuple(reasons), stands_by)

    def _why_not_serving(self) -> Iterator[str]:
        ownership = self._ownership
        if ownership.standby:
            yield f"it waits for its log, which no other publisher is known to own: {ownership.standby}"
        elif ownership.waits:
            yield f"it waits for its registration and serves nothing: {ownership.waits}"
        elif not self._applications.known.is_set():
            yield "it is starting: what is configured was not read yet"

    def _why_stuck(self, stuck: float) -> str:
        served, lead = self._served, self._tailed.fleet.lead
        log = f"{served.dataset.name}/{served.copy}/{served.log}"
        if lead is None:
            cause = str(self._tailed.unreadable) or "no reader could be opened"
            return f"the log {log} has had no reader for {stuck:.0f} s: {cause}"
        unread = self._tailed.watch.behind(lead.buffer.place)
        more = "" if unread is None else f", {unread} bytes are not read"
        return (
            f"the log {log} grows and nothing of it was read for {stuck:.0f} s: the reader is at "
            f"{lead.buffer.place}{more}. "
            "Next: see that its disk or server answers (`wormholectl doctor`), then restart this publisher; nothing is "
            "lost by that"
        )
