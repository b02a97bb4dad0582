"""Handles flows whose log cannot be read any further. The application receives the missing range of the log and decides
whether the flow continues after it. Otherwise an operator decides.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from caravan.fleet import Fleet
from caravan.flow import CaravanFlow
from publisher.flows.assigner import Assigner
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.records import FlowRecords
from publisher.push.delivery import FlowDelivery
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from wormhole.host.clock import Clock
from wormhole.model.errors import Diverged, Fatal, PositionPurged, UsageError, WormholeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.log_source import LogSource, PurgedInside

__all__ = ["LossRepairs", "Losses"]

_log = logging.getLogger(__name__)

_RETRY_S = 2.0


class LossRepairs(Protocol):
    """The rows of lost log, and repairs that send them. Methods are called on the event loop."""

    async def rows_lost(self, flow: PublisherFlow, begin: LogPosition, end: LogPosition) -> LostKeys | str:
        """The rows that the flow lacks from this range of the log, or why they are not known."""
        ...

    async def cover(self, flow: PublisherFlow, begin: LogPosition, end: LogPosition) -> bool:
        """Extend the flow's running repair, if it has one, to the rows of this range. Returns false if the flow is
        assigned anew for that. Raises :class:`~wormhole.model.errors.WormholeError` and ``KeyError``.
        """
        ...


class Losses:
    """See the module. ``repairs``: the rows that a repair of a loss sends."""

    def __init__(
        self,
        source: LogSource,
        assigner: Assigner,
        fleet: Fleet,
        background: BackgroundTasks,
        repairs: LossRepairs,
        records: FlowRecords,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._source = source
        self._assigner = assigner
        self._fleet = fleet
        self._background = background
        self._repairs = repairs
        self._records = records

    def held(self, caravan_flow: CaravanFlow, error: WormholeError) -> None:
        """Hold the flow, because no caravan can read the log for it."""
        flow = self._assigner.flows.get((caravan_flow.application, caravan_flow.shard))
        if flow is None or flow.delivery.caravan_flow is not caravan_flow:
            return
        _log.error("%s is held: %s", flow.name, error, extra=flow.about)
        flow.hold(error.problem)
        if isinstance(error, PositionPurged | Diverged):
            self._background.spawn(self._tell(flow, caravan_flow, error))

    async def _tell(self, flow: PublisherFlow, caravan_flow: CaravanFlow, error: PositionPurged | Diverged) -> None:
        """Ask the application to decide about the log that cannot be read from the marker on."""
        kind = LossKind.PURGED if isinstance(error, PositionPurged) else LossKind.DIVERGED
        gap = LogGap(kind, error.first_missing, error.last_missing, error.text)
        if kind is LossKind.PURGED:  # the updates that a diverged log lacks were delivered
            gap = gap.without(caravan_flow.marker.delivered)
        reported = ""
        while True:
            try:
                resume = await asyncio.to_thread(_resume, self._source, error)
                break
            except WormholeError as trouble:
                # A failure only delays the report, because only a reported loss can be accepted.
                if str(trouble) != reported:
                    reported = str(trouble)
                    _log.warning("the loss of %s is reported later: %s", flow.name, trouble, extra=flow.about)
                await self._clock.sleep(_RETRY_S)
                if flow.delivery.caravan_flow is not caravan_flow:
                    return
        try:
            if not await self._repairs.cover(flow, caravan_flow.place, resume.order):
                return
        except (WormholeError, KeyError) as trouble:  # then the repair reads whole tables
            _log.warning("%s: a repair under way does not know of more loss: %s", flow.name, trouble, extra=flow.about)
        rows = await self._repairs.rows_lost(flow, caravan_flow.place, resume.order)
        stream = self._assigner.stream_of(flow)
        if stream is not None and flow.delivery.caravan_flow is caravan_flow and flow.stage is Stage.HELD:
            flow.ask(gap, resume, str(rows) if isinstance(rows, LostKeys) else f"whole tables: {rows}")
            stream.tell_loss(flow, gap, resume)

    async def disproof(self, delivery: FlowDelivery, have: Datamarker) -> str:
        """Why the application's datamarker ``have`` cannot be from the history of this log; empty if it can be.

        Also empty if the flow's own datamarker is not from that history: then the log was replaced, which is reported
        as a loss.
        """
        if not delivery.may_have(have):
            return "it was never offered"
        found = await asyncio.to_thread(_disproof, self._source, have)
        return "" if found and await asyncio.to_thread(_disproof, self._source, delivery.marker) else found

    def decided(self, flow: PublisherFlow, proceed: bool) -> None:
        """Continue the flow or hold it, as the application answered. ``proceed`` is also an operator's decision to
        continue a flow that its application holds."""
        stream = self._assigner.stream_of(flow)
        if stream is None or flow.loss.open is None or flow.delivery.caravan_flow is None or flow.releasing:
            return
        gap, resume = flow.loss.open
        if not proceed:
            step = _next_step(flow.name, flow.loss.repair)
            flow.decline(Problem(f"held: the application halts at a data loss: {gap.message}", step, code="data-lost"))
            _log.error("%s stays held: %s", flow.name, Problem(gap.message, step, code="data-lost"), extra=flow.about)
            return
        _log.warning(
            "%s goes on at %s after a data loss: %s. Next: `wormholectl repair %s` sends the rows that it lacks",
            flow.name,
            resume,
            gap.message,
            flow.name,
            extra=flow.about,
        )
        back = resume.order < flow.delivery.marker.order
        flow.accept(back=back)
        if back:
            # The log has another history. Only a rewind can set the flow back.
            self._background.spawn(self._records.rewind(stream, flow, resume))
            return
        flow.delivery.caravan_flow.pass_gap(resume)
        self._fleet.resume(flow.delivery.caravan_flow)


def _next_step(name: str, reads: str) -> str:
    """The next step for a flow whose application halts. ``reads``: what a repair would read."""
    return (
        f"`wormholectl repair {name}` sends the rows that it lacks{f' ({reads})' if reads else ''}; "
        f"an archive that holds the range can replay it; `wormholectl flows accept-loss {name}` goes on without it"
    )


def _disproof(source: LogSource, marker: Datamarker) -> str:
    try:
        source.open(marker).close()
    except Diverged as error:
        return error.message
    except WormholeError:
        pass  # the next opening of the log reports the error
    return ""


def _resume(source: LogSource, error: PositionPurged | Diverged) -> Datamarker:
    """Where the log continues after the missing range. Raises :class:`Retryable`."""
    if isinstance(error, PurgedInside):
        return error.resume
    if isinstance(error, Diverged) and error.resume:
        try:
            return source.locate(error.resume)
        except (Fatal, UsageError):
            pass  # the log changed again since
    return source.earliest()
