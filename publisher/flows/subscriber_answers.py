"""Receives all events of the subscribers' streams and passes each to the part that handles it."""

from __future__ import annotations

import logging

from publisher.flows.assigner import Assigner
from publisher.flows.backfills import Backfills
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.losses import Losses
from publisher.flows.records import FlowRecords
from publisher.flows.refused_epochs import RefusedEpochs
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from publisher.push.stream import SubscriberStream
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.push.session import FailedReason, FlowFailed, LetterArrived, Verified
from wormhole.wire.bounds import shortened

__all__ = ["Deliveries"]

_log = logging.getLogger(__name__)


class Deliveries:
    """See the module. Implements :class:`~publisher.push.stream.StreamEvents`."""

    def __init__(
        self,
        assigner: Assigner,
        records: FlowRecords,
        dead_letters: DeadLetterOffice,
        backfills: Backfills,
        losses: Losses,
        refused_epochs: RefusedEpochs,
        background: BackgroundTasks,
    ) -> None:
        self._assigner = assigner
        self._records = records
        self._dead_letters = dead_letters
        self._backfills = backfills
        self._losses = losses
        self._refused_epochs = refused_epochs
        self._background = background

    def ready(self, stream: SubscriberStream) -> None:
        """See :class:`~publisher.push.stream.StreamEvents` for this and the following methods."""
        self._assigner.changed()

    def opened(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker | None, move: int) -> None:
        flow.holding.accepted()
        delivery = flow.delivery
        if have is not None and have.order > delivery.marker.order and delivery.refuses_later(move):
            _log.warning(  # a subscriber of an earlier release does not receive the move
                "%s was set back to %s: delivery begins there, not at %s, which the application has",
                flow.name,
                delivery.marker,
                have,
                extra=flow.about,
            )
            have = None
        if have is None or delivery.was_offered(have):
            self._go_on(stream, flow, have)
        else:
            self._background.spawn(self._prove(stream, flow, have))

    async def _prove(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker) -> None:
        """Begin at ``have`` unless the log shows that ``have`` is from another history."""
        epoch = flow.holding.epoch
        disproof = await self._losses.disproof(flow.delivery, have)
        if self._assigner.stream_of(flow) is not stream or (flow.stage, flow.holding.epoch) != (Stage.OPENING, epoch):
            return
        if not disproof:
            self._go_on(stream, flow, have)
            return
        problem = Problem(
            f"held: {stream.info.id} has effects up to {shortened(str(have))}, which is of another history than "
            f"the datamarker {flow.delivery.marker}: {disproof}",
            f"`wormholectl explain target-diverged`, then `wormholectl flows resume {flow.name}`",
            code="target-diverged",
        )
        flow.hold(problem)
        _log.error("%s is %s", flow.name, problem, extra=flow.about)

    def _go_on(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker | None) -> None:
        delivery = flow.delivery
        if have is not None and have.order < delivery.marker.order:
            self._background.spawn(self._records.rewind(stream, flow, have, by_application=True))
            return
        if have is not None and (have.order, have.backfill) != (delivery.marker.order, delivery.marker.backfill):
            self.acked(flow, flow.holding.epoch, have)  # the application has more updates or other existing rows
        self._records.counter.open(flow)
        if flow.parking.next_again is not None:
            flow.redeliver()
            self._background.spawn(self._redeliver(stream, flow))
        else:
            self._begin(stream, flow)

    async def _redeliver(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        """Send the parked updates that are marked for delivery. Updates of the log wait until these are finished,
        because they would overtake them."""
        epoch = flow.holding.epoch
        redelivered = await self._dead_letters.redeliver(stream, flow)
        if redelivered and flow.holding.epoch == epoch and flow.stage is Stage.REDELIVERING:
            self._begin(stream, flow)

    def _begin(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        stream.begin(flow, self._backfills.begin(flow, stream))

    def parking(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int, wanted: LetterArrived) -> None:
        self._background.spawn(self._dead_letters.answer(stream, flow, epoch, wanted))

    def acked(self, flow: PublisherFlow, epoch: int, marker: Datamarker) -> None:
        self._records.acked(flow, epoch, marker)

    def released(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        self._records.closed(flow)
        self._assigner.released(stream, flow)

    def undone(self, stream: SubscriberStream, flow: PublisherFlow, transaction: str) -> None:
        """Restart the flow at its datamarker, because the database rolled a delivered transaction back. The epoch is
        new, so that answers to earlier updates are refused."""
        flow.delivery.undone(transaction)
        cause = f"the database rolled back transaction {transaction}, of which a part was delivered"
        _log.warning("%s begins again at %s: %s", flow.name, flow.delivery.marker, cause, extra=flow.about)
        self._assigner.revoke(stream, flow, cause)

    def failed(self, stream: SubscriberStream, flow: PublisherFlow, event: FlowFailed) -> None:
        self._records.closed(flow)
        if event.reason is FailedReason.RESEND:
            flow.release(f"sent again: {event.message}")
        elif event.reason is not FailedReason.STALE_EPOCH or not self._refused_epochs.answered(stream, flow, event):
            where = f" (update {event.update_id})" if event.update_id else ""
            past = f", or `wormholectl flows skip {flow.name} --update {event.update_id}`" if event.update_id else ""
            _log.error(
                "%s halted at %s: %s%s. Next: mend it, then restart that subscriber or `wormholectl flows resume %s`%s",
                flow.name,
                stream.info.id,
                event.message,
                where,
                flow.name,
                past,
                extra=flow.about,
            )
            self._assigner.halt(stream, flow, event.message, event.update_id)
        self._assigner.changed()

    def decided(self, flow: PublisherFlow, proceed: bool) -> None:
        self._losses.decided(flow, proceed)

    def verified(self, flow: PublisherFlow, epoch: int, event: Verified) -> None:
        self._backfills.verified(flow, epoch, event)

    def ended(self, stream: SubscriberStream, lost: list[PublisherFlow], cause: str) -> None:
        for flow in lost:
            self._records.closed(flow)
        self._assigner.ended(stream, lost, cause)
