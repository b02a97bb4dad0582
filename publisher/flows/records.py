"""Writes the stored records of the flows of one log: operators' changes (``FlowControl``), and datamarkers.

Each change is durable before it takes effect. After a crash between two writes, the stored records determine where the
flow continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from publisher.flows.assigner import Assigner
from publisher.flows.backfill_rules import is_unfinished, renewed
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.delivery_counter import DeliveryCounter
from publisher.flows.marker_writer import MarkerWriter
from publisher.flows.part_reports import Row
from publisher.flows.update_ids import is_behind
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.audit.sent_counts import Settled
from wormhole.host.clock import Clock
from wormhole.metrics import Histogram
from wormhole.metrics import catalogue as c
from wormhole.model.errors import WormholeError
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import FlowControl, MarkerStore, MarkerWrite

__all__ = ["FlowRecords"]

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0


class FlowRecords:
    """See the module.

    ``kind``: the kind of the source. ``behind``: applications whose datamarkers must not be stored now. ``ack_ages``:
    by application, the ages of transactions when they were acknowledged.
    """

    def __init__(
        self,
        kind: str,
        store: MarkerStore,
        assigner: Assigner,
        counter: DeliveryCounter,
        background: BackgroundTasks,
        behind: Collection[str],
        clock: Clock,
    ) -> None:
        self.store = store
        self.counter = counter
        self.markers = MarkerWriter(store, self.stored, self._refused, behind.__contains__, clock)
        self.ack_ages: dict[str, Histogram] = {}
        self._kind = kind
        self._assigner = assigner
        self._background = background
        self._clock = clock
        self._changing = asyncio.Lock()

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        yield c.MARKERS_WAITING, self.markers.waiting
        yield c.MARKERS_FAILING, bool(self.markers.problem)
        for application in {application for application, _ in self._assigner.flows}:
            yield c.AUDIT_MISMATCHES, self.counter.mismatches.get(application, 0), application
        yield (self.markers.write_times,)
        for application, ages in self.ack_ages.items():
            yield ages, application

    # -- what operators asked

    async def control(self, flow: PublisherFlow, change: Callable[[FlowControl], FlowControl]) -> None:
        """Change the flow's control, durably.

        Raises the errors of ``change`` and of the store, and ``KeyError`` for a deleted record. After an error nothing
        is changed."""
        async with self._changing:
            while (wanted := change(flow.control)) != (was := flow.control):
                done = await asyncio.to_thread(self.store.set_control, flow.key, wanted, was)
                if not done:  # another publisher has changed the stored control: its change stays
                    wanted = (await asyncio.to_thread(self.store.load, flow.application))[flow.key].control
                for one in (flow, self._assigner.present(flow)):
                    one.controlled(wanted)
                if done:
                    return

    async def renew_backfill(self, flow: PublisherFlow, cause: str) -> None:
        """Begin the flow's unfinished backfill anew, because the rows that it sent may be outdated."""
        if is_unfinished(flow.control):
            await self.control(flow, lambda control: renewed(control, flow.filter.hash))
            _log.info("the backfill of %s begins anew: %s", flow.name, cause, extra=flow.about)

    async def _forget_skipped(self, flow: PublisherFlow) -> None:
        """Remove updates that the datamarker has passed from the updates to skip."""

        def rest(control: FlowControl) -> FlowControl:
            durable = flow.delivery.durable
            return replace(
                control, skip=tuple(item for item in control.skip if not is_behind(self._kind, item, durable))
            )

        try:
            await self.control(flow, rest)
        except (WormholeError, KeyError) as error:
            _log.warning("%s: what was skipped is not forgotten yet: %s", flow.name, error, extra=flow.about)

    # -- where it continues

    async def move(self, flow: PublisherFlow, to: Datamarker, *, by_application: bool = False) -> None:
        """Set the flow's datamarker, forwards or backwards, in a new epoch. The subscriber that has the flow is asked
        to release it and gets it again at ``to``. Raises the store's errors, and ``KeyError`` if the record was
        deleted.

        The new epoch becomes the number of the flow's last move. It does not if the flow is at ``to`` already, or if
        the application itself reported ``to`` (``by_application``).

        A failed write may have set the datamarker nevertheless. The flow gets no new epoch before that is known.
        """
        if not to.backfill and not flow.loss.unreadable:  # a record that cannot be read is written anew below
            # The backfill is renewed first. After a crash between the two writes it then begins anew at the former
            # datamarker, and no row is missing.
            await self.renew_backfill(flow, f"its datamarker goes to {to}")
        async with self._changing:  # an operator and the application may move the flow at the same time
            flow.delivery.begin_move()
            try:
                await self.markers.flush()  # the store has to know the last marker, to see whether the flow goes back
                counts = not by_application and not _is_at(flow, to)
                await self.restore(flow, to)
                # The flow leaves its epoch. Late acks of that epoch are refused.
                try:
                    epoch = await asyncio.to_thread(self.store.rewind, flow.key, to, counts=counts)
                except WormholeError:
                    if counts:
                        flow.delivery.begin_move()
                        self._background.spawn(self._end_move(flow))
                    raise
                self._moved(flow, epoch, to, epoch if counts else flow.delivery.move)
            finally:
                flow.delivery.end_move()
        self._assigner.anew(flow, f"goes to {to}")

    def _moved(self, flow: PublisherFlow, epoch: int, to: Datamarker, move: int) -> None:
        """Take over the stored move: the flow is at ``to`` in ``epoch``. ``move``: the number of its last move."""
        self.markers.drop(flow.key)  # only now: if the store fails, the acknowledged marker has to be stored later
        forwards = to.order > flow.delivery.durable.order
        flow.moved(epoch, to, move)
        if forwards:
            pages = self.counter.moved_past(flow)
            self.markers.put(MarkerWrite(flow.key, flow.holding.epoch, to, flow.filter.hash, pages))

    async def _end_move(self, flow: PublisherFlow) -> None:
        """Finish a move whose write failed, once the flow's record can be read.

        Without the number of a stored move in its assignment, the application would continue from its own datamarker. A
        later publisher would then assign the flow with that number and set the application back.
        """
        try:
            while not await self._found_out(flow):
                await self._clock.sleep(_RETRY_S)
        finally:
            flow.delivery.end_move()
            self._assigner.changed()

    async def _found_out(self, flow: PublisherFlow) -> bool:
        """Read the flow's record, and apply a move that only the record has. Returns whether the read succeeded."""
        async with self._changing:
            try:
                record = (await asyncio.to_thread(self.store.load, flow.application)).get(flow.key)
            except WormholeError:
                return False  # other tasks report the store's error
            now = self._assigner.present(flow)
            if record is not None and record.move > now.delivery.move:
                _log.warning(
                    "%s goes to %s: the marker store had set it when it failed",
                    flow.name,
                    record.marker,
                    extra=flow.about,
                )
                self._moved(now, record.epoch, record.marker, record.move)
                self._assigner.anew(now, f"goes to {record.marker}")
        return True

    async def rewind(
        self, stream: SubscriberStream, flow: PublisherFlow, to: Datamarker, *, by_application: bool = False
    ) -> None:
        """Move the flow back to ``to``, because the application has processed less than the stored datamarker covers,
        or because the log has another history. ``by_application``: as in :meth:`move`."""
        try:
            await self.move(flow, to, by_application=by_application)
        except (WormholeError, KeyError) as error:  # KeyError: its record was deleted
            _log.error("%s cannot go back to %s: %s", flow.name, to, error, extra=flow.about)
            self._assigner.revoke(stream, flow, f"goes back to {to}")

    async def restore(self, flow: PublisherFlow, to: Datamarker) -> None:
        """Replace the unreadable record of a flow by a new one at ``to``. Raises the store's errors."""
        if flow.lost_record:
            record = await asyncio.to_thread(self.store.register, flow.key, to, "", flow.holding.epoch + 1)
            flow.restored(record.control)

    async def raise_epoch(self, flow: PublisherFlow, above: int = 0) -> None:
        """Raise the flow's epoch beyond ``above``. Raises the store's errors, and ``KeyError`` for a deleted record."""
        flow.holding.raised(await asyncio.to_thread(self.store.raise_epoch, flow.key, above))

    # -- what was acknowledged

    async def settle(self) -> None:
        """Store the acknowledged datamarkers. Raises the store's errors."""
        await self.markers.flush()

    def acked(self, flow: PublisherFlow, epoch: int, marker: Datamarker) -> None:
        """Note that a subscriber acknowledged everything up to ``marker`` in ``epoch``."""
        if epoch != flow.holding.epoch:
            return  # a rewind ended that epoch
        now = self._assigner.present(flow)
        if now.holding.epoch == epoch:
            now.acked(marker)
        flow.acked(marker)
        if marker.committed_at_us:
            ages = self.ack_ages.get(flow.application)
            if ages is None:
                ages = self.ack_ages[flow.application] = Histogram(c.ACK_AGE)
            ages.observe(max(0.0, self._clock.wall() - marker.committed_at_us / 1e6))
        pages = self.counter.acknowledged(flow, marker)
        if pages or not flow.delivery.has_stored(marker, epoch):
            self.markers.put(MarkerWrite(flow.key, epoch, marker, flow.filter.hash, pages))

    def closed(self, flow: PublisherFlow) -> None:
        """Store the remaining counts of the flow's epoch, which is over."""
        pages = self.counter.closed(flow)
        if pages:
            # A record without a filter's hash has a datamarker that no subscriber acknowledged.
            filter_hash = flow.filter.hash if flow.delivery.acknowledged else ""
            write = MarkerWrite(flow.key, flow.holding.epoch, flow.delivery.marker, filter_hash, pages)
            self.markers.put(write)

    async def store_replayed(self, flow: PublisherFlow, write: MarkerWrite, settled: Settled | None) -> bool:
        """Store the datamarker that a mass replay reached, and count ``settled`` with it. Returns false if the store
        has a newer epoch. Raises the store's errors.
        """
        pages = {} if settled is None else self.counter.count(flow, settled, write.marker.order)
        if write.marker.order < flow.delivery.marker.order:  # the application requested a place before its datamarker
            if not pages:
                return True
            write = replace(write, marker=flow.delivery.marker)
        write, done = replace(write, counts=pages), False
        try:
            done = not await asyncio.to_thread(self.store.store, [write])
        finally:
            if not done:
                self.counter.forget(flow)
        if done and flow.holding.epoch == write.epoch:
            flow.acked(write.marker)
            self.stored(write)
        return done

    def stored(self, write: MarkerWrite) -> None:
        """Note that the datamarker of ``write`` is durable."""
        flow = self._assigner.flows.get(write.flow)
        if flow is not None and write.epoch == flow.holding.epoch:
            flow.delivery.stored(write.marker, write.epoch)
            if any(is_behind(self._kind, item, write.marker) for item in flow.control.skip):
                self._background.spawn(self._forget_skipped(flow))

    def _refused(self, write: MarkerWrite) -> None:
        flow = self._assigner.flows.get(write.flow)
        stream = None if flow is None else self._assigner.stream_of(flow)
        # A refused write of an epoch that this publisher has ended does not mean that another publisher has the flow.
        if flow is not None and stream is not None and flow.holding.epoch == write.epoch and not flow.delivery.moving:
            cause = (
                f"its datamarker was refused by the marker store, which has another epoch than {flow.holding.epoch} of "
                "it, lost it, or takes no record so large (then the error before names the sizes)"
            )
            _log.error("%s is asked back: %s", flow.name, cause, extra=flow.about)
            self._assigner.revoke(stream, flow, cause)


def _is_at(flow: PublisherFlow, to: Datamarker) -> bool:
    """Whether the flow's datamarker is known, and covers the same updates as ``to``."""
    return not flow.lost_record and not flow.control.missing and flow.delivery.marker.is_place_of(to)
