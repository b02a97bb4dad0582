"""The log that a publisher serves: its source, the caravans that read it, and the measures of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from caravan.fleet import Fleet
from publisher.flows.applications import Applications
from publisher.flows.assigner import Assigner
from publisher.flows.lag_and_headroom import FlowLag, Headroom, LogWatch
from publisher.flows.log_description import caravan_samples, describe_end, describe_fleet, log_samples
from publisher.flows.part_reports import Row
from publisher.flows.progress import Progress
from publisher.push.flow import PublisherFlow
from publisher.relay.lead import common_start, lead_start
from wormhole.host.clock import Clock
from wormhole.metrics import catalogue as c
from wormhole.model.errors import WormholeError
from wormhole.model.position import LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.log_source import LogSource
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["TailedLog"]

_RETRY_S = 2.0


class TailedLog:
    """See the module. ``watch``: measures how far flows are behind the end of the log; ``progress``: detects that the
    log grows but is not read."""

    def __init__(self, source: LogSource, fleet: Fleet, clock: Clock) -> None:
        self.source = source
        self.fleet = fleet
        self.watch = LogWatch()
        self.progress = Progress()
        self._clock = clock

    @property
    def unreadable(self) -> Problem:
        """Why the log cannot be read now; empty while it is read."""
        if self.watch.unreachable:
            return self.watch.unreachable
        return self.fleet.unreadable if self.fleet.lead is None else NO_PROBLEM

    def cannot_be_read(self) -> bool:
        """Whether another publisher should serve the log, if it can read the log."""
        return bool(self.fleet.trouble or self.watch.end_unknown)

    async def read(self, applications: Applications, assigner: Assigner) -> None:
        """Read until cancelled. The lead begins at the flows' places, so the flows have to be known first."""
        while True:
            try:
                start = await asyncio.to_thread(lead_start, self.source)
                break
            except WormholeError as error:
                # Permanent errors are retried too. If the publisher ended, its monitor would restart it in a loop and
                # finally give it up.
                self.fleet.pause(f"the end of the log is not known yet: {error}", error)
                await self._clock.sleep(_RETRY_S)
        await applications.known.wait()
        start = common_start(start, (flow.delivery.marker for flow in assigner.flows.values()))
        # The first shard of an application may have appeared since its registration. The lead reads the log in between
        # and finds it.
        await self.fleet.run(min((start, *applications.unused_starts()), key=lambda marker: marker.order))

    async def look(self) -> None:
        """Read the source's status. Raises what the source raises."""
        try:
            status = await asyncio.to_thread(self.source.status)
        except WormholeError as error:
            self.watch.failed(error.problem)
            raise
        self.watch.measured(status, self._clock.monotonic())
        self.fleet.files(status.files)

    def look_at_lead(self, now: float) -> None:
        """Note the lead caravan's place; called about once a second."""
        lead = self.fleet.lead
        if lead is None:
            self.progress.measured(None, None, now)
        else:
            place, read = lead.buffer.place, self.fleet.read_bytes_total
            self.progress.measured(place, self.watch.behind(place), now, read=read, waits=lead.waits)

    # -- what operators see

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """See :class:`~publisher.flows.part_reports.Described`."""
        if (unreadable := problem_to_message(self.unreadable)) is not None:
            message.unreadable.CopyFrom(unreadable)
        stuck = self.progress.stuck_s(self._clock.monotonic())
        if stuck is not None:
            message.stuck_s = stuck
        describe_end(message, self.watch, self.fleet)
        describe_fleet(message, self.fleet, self._clock.monotonic())

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        watch, fleet, now = self.watch, self.fleet, self._clock.monotonic()
        yield c.READER_BYTES, fleet.read_bytes_total
        yield c.READER_TRANSACTIONS, watch.transactions
        yield c.READER_UPDATES, watch.updates
        yield c.LOG_STUCK, self.progress.stuck_s(now) or 0.0
        yield c.LOG_GROWTH, watch.growth()
        if fleet.lead is not None:
            yield c.LOG_UNREAD, watch.behind(fleet.lead.buffer.place)
        if watch.status is not None:
            yield from log_samples(watch.status, self._clock.wall())
        yield from caravan_samples(fleet, now)

    def lag(self, flow: PublisherFlow) -> FlowLag:
        """The flow's lag."""
        return self.watch.lag(flow.shard, flow.delivery.acknowledged_to, self._clock.wall())

    def headroom(self, flow: PublisherFlow) -> Headroom:
        """For how long the log holds the next updates of the flow. A flow in a mass replay does not need them."""
        if flow.control.replay is not None:
            return Headroom(None, "a replay delivers the flow")
        return self.watch.headroom(flow.delivery.marker)

    async def release(self, oldest: LogPosition) -> None:
        """Release the log before ``oldest``, which no flow needs. Raises the source's errors."""
        await asyncio.to_thread(self.source.release, oldest)
