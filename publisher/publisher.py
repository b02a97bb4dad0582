"""The publisher of one log: joins source, caravans, streams, markers and coordination.

Everything it decides is in the parts; this module only connects their events.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from caravan.backfill.boundaries import BoundaryStore, MemoryBoundaries
from caravan.fleet import Fleet, FleetEvents
from caravan.flow import CaravanFlow
from publisher.flows.applications import Applications, Served
from publisher.flows.assigner import Assigner, Timeouts
from publisher.flows.backfills import Backfills
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.configured_limits import ConfiguredLimits, limits_of
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.delivery_counter import DeliveryCounter
from publisher.flows.housekeeping import Housekeeping
from publisher.flows.known_flows import KnownFlows
from publisher.flows.lag_and_headroom import LogWatch
from publisher.flows.losses import Losses
from publisher.flows.lost_rows import LostRows
from publisher.flows.marker_writer import MarkerWriter
from publisher.flows.ownership import LogHandedOver, Ownership
from publisher.flows.progress import Progress
from publisher.flows.refused_epochs import RefusedEpochs
from publisher.flows.registrar import Registrar
from publisher.flows.replays import Replays
from publisher.flows.row_scans import RowScans
from publisher.flows.update_ids import is_behind
from publisher.push.flow import PublisherFlow
from publisher.push.pacing import RoundCost, gather_interval
from publisher.push.stages import PublisherFlowState, Stage
from publisher.push.stream import Dialer, StreamEvents, SubscriberStream
from publisher.relay.lead import common_start, lead_start
from wormhole.coordination.port import Coordinator, FlowRecord, PublisherInfo
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import in_turns
from wormhole.metrics import Histogram, catalogue
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogRelay, LogSource
from wormhole.ports.marker_store import FlowControl, MarkerStore, MarkerWrite
from wormhole.ports.table_source import TableSource
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.room import Room
from wormhole.push.session import MAX_VERSION, MIN_VERSION, FailedReason, FlowFailed, LetterArrived, Verified
from wormhole.wire.bounds import shortened
from wormhole.wire.v1 import push_pb2

__all__ = ["Publisher"]

_log = logging.getLogger(__name__)

_RETRY_S = 2.0
_STOPS_S = 2.0  # a source has this long to stop before another publisher may begin
_BESIDE_AN_UPDATE = 2 << 20


async def _by_the_caller() -> None:
    """The caller starts and stops the source."""


def _no_tables() -> TableSource:
    raise UsageError("existing rows of this log cannot be read", hint='use `start = "latest"`')


class Publisher:
    """Tails one log and pushes it. ``run`` serves until cancelled and then stops gracefully.

    ``relay``: of the log, where there is one; no default, for nothing notices one that was forgotten.
    ``open_tables``: the rows that the log's tables hold; ``boundaries``: where chunks of these end. ``ownership``:
    how it comes to own the log; by default by its registration alone.
    """

    def __init__(
        self,
        served: Served,
        source: LogSource,
        store: MarkerStore,
        coordinator: Coordinator,
        known: KnownFlows | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        relay: LogRelay | None,
        open_tables: Callable[[], TableSource] = _no_tables,
        boundaries: BoundaryStore | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        self.clock = clock
        self.served = served
        self.source = source
        self.coordinator = coordinator
        self.started = clock.wall()
        settings = served.settings
        host = socket.gethostname()
        hello = push_pb2.Hello(
            min_version=MIN_VERSION,
            max_version=MAX_VERSION,
            publisher=f"{served.dataset.name}/{served.copy}/{served.log}@{host}:{os.getpid()}",
            dataset=served.dataset.name,
            copy=served.copy,
            log=served.log,
            heartbeat_ms=round(settings.heartbeat * 1000),
            max_frame_bytes=settings.max_frame,
            owner=store.owner or f"{host}:{os.getpid()}:{self.started}",
        )
        self.identity = hello.publisher
        self.http_address = ""  # serves metrics and health; set by the daemon
        self.admin_address = ""  # the admin service; set by the daemon
        self.relay = relay
        limits = limits_of(served.dataset.caravans, settings.change_buffer)
        self.store = store
        self._lag = 0.0
        self._rounds = 0  # segments read
        self._round_cost = RoundCost()
        self.ack_ages: dict[str, Histogram] = {}  # by application
        self.log_watch = LogWatch()
        self.progress = Progress()
        fleet_events = FleetEvents(self._held, self._advanced)
        self.fleet = Fleet(source, limits, fleet_events, self._gather_interval, lambda: self._lag, clock=clock)
        self.scans = RowScans(
            self.fleet, open_tables, boundaries or MemoryBoundaries(), served.dataset.existing_rows, clock
        )
        self.caps = ConfiguredLimits(coordinator, served.dataset, self.fleet, self.scans, clock)
        events = StreamEvents(
            ready=lambda stream: self.assigner.changed(),
            opened=self._opened,
            parking=self._parking,
            acked=self._acked,
            released=self._released,
            undone=self._undone,
            failed=self._failed,
            decided=self._decided,
            verified=self._verified,
            ended=self._ended,
        )
        # One update of the largest size, and its surroundings: of all subscribers together.
        self.parking_room = Room(settings.max_update_bytes + _BESIDE_AN_UPDATE)
        # Opening updates to be parked takes processor time, and storing them waits for a disk or for ZooKeeper.
        self.peer_threads = PeerThreads("letters-opened", 1, clock)
        self.letter_threads = PeerThreads("letters-stored", 2, clock)
        behind: set[str] = set()
        self.delivery_counter = DeliveryCounter(store, clock)
        fenced = settings.markers == "zookeeper"
        self.ownership = ownership or Ownership(coordinator, fenced=fenced, clock=clock)
        self.host = self.ownership.host or host  # as people and other processes know it
        self.markers = MarkerWriter(store, self._stored, self._refused, behind.__contains__, clock)
        self.assigner = Assigner(
            store,
            self.fleet,
            Dialer(hello, served.trust, self.parking_room, letters=self.peer_threads, clock=clock),
            events,
            Timeouts(settings.grace_period, settings.handler_timeout),
            self.ownership,
            self.markers.flush,
            self.record,
            self._read,
            self._prepare,
            clock,
        )
        letters = store.dead_letters()
        self.dead_letters = DeadLetterOffice(
            letters,
            settings.dead_letters,
            self.assigner.flows,
            self.assigner.holds,
            self._again,
            self._lost,
            self.letter_threads,
            clock,
        )
        self.known = known or KnownFlows(coordinator)
        registrar = Registrar(store, source, served.log, self.known, clock)
        self.applications = Applications(served, source, registrar, coordinator, self.assigner, behind, clock)
        self._background = BackgroundTasks()
        self._refused_epochs = RefusedEpochs(
            store, self.assigner, self.ownership, self._background, self.control, clock
        )
        self._controlling = asyncio.Lock()
        self._recording = asyncio.Lock()  # records are written in the order in which they were made
        self.replays = Replays(
            source,
            store,
            self.assigner,
            self.dead_letters,
            self._background,
            self.delivery_counter,
            self.markers.flush,
            self._stored,
            self.control,
            self.move,
            self.record,
            self.parking_room,
            self.peer_threads,
            clock,
        )
        lost_rows = LostRows(relay)
        self.backfills = Backfills(
            served, self.assigner.flows, self.scans, lost_rows, self._background, self.control, self._anew, clock
        )
        self.losses = Losses(source, self.assigner, self.fleet, self._background, self.backfills, self._rewind, clock)
        self.housekeeping = Housekeeping(
            source,
            self.fleet,
            self.assigner,
            self.applications,
            self.ownership,
            self.replays,
            self.dead_letters,
            self.backfills,
            lost_rows,
            self.log_watch,
            self.progress,
            lambda: self.record(self.assigner.flows.values()),
            clock,
        )

    # -- life

    async def run(
        self,
        ready: Callable[[], None] = lambda: None,
        start_source: Callable[[], Awaitable[None]] = _by_the_caller,
        stop_source: Callable[[], Awaitable[None]] = _by_the_caller,
    ) -> None:
        """Wait until this process owns the log, and serve until cancelled; then finish, store what was acknowledged and
        leave.

        Raises what makes serving impossible, and :class:`~publisher.flows.ownership.LogHandedOver`.

        The store is open and the coordinator connected; the caller closes them afterwards. ``start_source`` is called
        when the log is ours, for a standby leaves the datastore alone, and ``stop_source`` while it still is, so that
        what the source knows is there for the next owner.
        """
        info = PublisherInfo(
            self.served.dataset.name,
            self.served.copy,
            self.served.log,
            self.host,
            os.getpid(),
            self.admin_address,
            self.started,
            self.store.owner,
        )
        patience_s = self.served.settings.stop_timeout
        try:
            await self.ownership.take(info)
            await start_source()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ownership.until_another(self._cannot_read), name="ownership")
                group.create_task(self.applications.run(), name="applications")
                group.create_task(self._keep_fleet(), name="fleet")
                group.create_task(self.caps.run(), name="caps")
                group.create_task(self.assigner.run(), name="assigner")
                group.create_task(self.markers.run(), name="markers")
                group.create_task(self.housekeeping.run(), name="housekeeping")
                group.create_task(self.scans.run(), name="existing-rows")
                group.create_task(self._measure_loop_delay(), name="lag")
                ready()
        except BaseExceptionGroup as group:
            handed_over = group.subgroup(LogHandedOver)
            if handed_over is None:
                raise
            found = handed_over.exceptions[0]
            assert isinstance(found, LogHandedOver)
            _log.warning("%s", found)
            patience_s = 0.0 if found.gone else patience_s
            raise found from None
        finally:
            await self.applications.stop()
            await self._background.stop()
            try:
                await self.assigner.close(patience_s)
            finally:  # also when a second signal cuts the waiting short
                await self._leave(stop_source)
                for threads in (self.markers, self.peer_threads, self.letter_threads):
                    threads.close()

    async def _leave(self, stop_source: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.markers.flush()
        except WormholeError as error:
            _log.error(
                "acknowledged datamarkers could not be stored, the next start repeats what they cover: %s", error
            )
        if self.assigner.flows and self.ownership.ours():
            try:  # the next owner of the log waits for no subscriber that released its flows
                await self.record(self.assigner.flows.values())
            except WormholeError as error:
                _log.warning("the flows that were released are not reported: %s", error)
        try:
            async with asyncio.timeout(_STOPS_S):
                await stop_source()
        except TimeoutError:
            _log.warning("the log's source does not stop yet, for its datastore does not answer: the log is given up")
        finally:
            await self.ownership.give_up()

    async def _keep_fleet(self) -> None:
        while True:
            try:
                start = await asyncio.to_thread(lead_start, self.source)
                break
            except WormholeError as error:
                # Also what does not pass by itself: as an end of the publisher it would be a crash loop, which its
                # monitor ends for good.
                self.fleet.pause(f"the end of the log is not known yet: {error}", error)
                await self.clock.sleep(_RETRY_S)
        # The lead should begin where the flows are, so they have to be known first.
        await self.applications.known.wait()
        start = common_start(start, (flow.delivery.marker for flow in self.assigner.flows.values()))
        # The first shard of an application may have been born since it was registered: reading what is between shows
        # it.
        await self.fleet.run(min((start, *self.applications.unused_starts()), key=lambda marker: marker.order))

    # -- events of the parts

    @property
    def unreadable(self) -> Problem:
        """Why nothing of the log can be read just now; empty while it is read."""
        if self.log_watch.unreachable:
            return self.log_watch.unreachable
        return self.fleet.unreadable if self.fleet.lead is None else NO_PROBLEM

    def _cannot_read(self) -> bool:
        return bool(self.fleet.trouble or self.log_watch.end_unknown)

    def _gather_interval(self) -> float:
        # Streams of flows that catch up get what another caravan reads, at its pace.
        lead = self.fleet.lead
        streams = sum(stream.connected for stream in self.assigner.streams())
        served = streams if lead is None else min(streams, len(lead.flows))
        return gather_interval(served, self._lag, self._round_cost.seconds)

    @property
    def loop_delay(self) -> float:
        """How late the event loop is just now, seconds."""
        return self._lag

    def state(self, flow: PublisherFlow, lead_flows: frozenset[str]) -> PublisherFlowState:
        """What an operator sees of the flow: one that is open is held while nothing may be sent."""
        if flow.delivery.caravan_flow is not None and not self.ownership.may_send():
            return PublisherFlowState.HELD
        return flow.state(lead_flows)

    def cause(self, flow: PublisherFlow) -> Problem:
        """Why the flow is in its :meth:`state`; empty where there is nothing to say."""
        if not self.ownership.ours() or (flow.delivery.caravan_flow is not None and not self.ownership.may_send()):
            return self.ownership.why_silent()
        waits = NO_PROBLEM if flow.delivery.caravan_flow is None else flow.delivery.caravan_flow.problem
        return self.replays.cause(flow) or flow.problem or waits or self.backfills.problem(flow)

    def _advanced(self, segment: Segment, before: Datamarker) -> None:
        self._rounds += 1
        self.log_watch.read(segment)
        self.applications.see(segment.runs)

    def _held(self, caravan_flow: CaravanFlow, error: WormholeError) -> None:
        self.losses.held(caravan_flow, error)

    def _verified(self, flow: PublisherFlow, epoch: int, event: Verified) -> None:
        self.backfills.verified(flow, epoch, event)

    def _decided(self, flow: PublisherFlow, proceed: bool) -> None:
        self.losses.decided(flow, proceed)

    def _released(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        self._close_counts(flow)
        self.assigner.released(stream, flow)

    def _close_counts(self, flow: PublisherFlow) -> None:
        pages = self.delivery_counter.closed(flow)
        if pages:
            self.markers.put(MarkerWrite(flow.key, flow.holding.epoch, flow.delivery.marker, flow.filter.hash, pages))

    def _ended(self, stream: SubscriberStream, lost: list[PublisherFlow], cause: str) -> None:
        for flow in lost:
            self._close_counts(flow)
        self.assigner.ended(stream, lost, cause)

    def _opened(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker | None) -> None:
        delivery = flow.delivery
        flow.holding.accepted()
        if have is not None and not delivery.was_offered(have):
            _log.warning(
                "%s: %s reports that its application has %s, which it was never offered: delivery begins at %s",
                flow.name,
                stream.info.id,
                shortened(str(have)),
                delivery.marker,
                extra=flow.about,
            )
            have = None
        if have is not None and have.order < delivery.marker.order:
            self._background.spawn(self._rewind(stream, flow, have))
            return
        if have is not None and have.order == delivery.marker.order and have.backfill != delivery.marker.backfill:
            self._acked(flow, flow.holding.epoch, have)  # it has the same changes, and other rows
        if have is not None and have.order > delivery.marker.order:
            if delivery.rewound:  # a subscriber of an earlier release does not know that it was
                _log.warning(
                    "%s was set back to %s: delivery begins there, not at %s, which the application has",
                    flow.name,
                    delivery.marker,
                    have,
                    extra=flow.about,
                )
            else:
                self._acked(flow, flow.holding.epoch, have)
        self.delivery_counter.open(flow)
        if flow.parking.next_again is not None:
            flow.redeliver()
            self._background.spawn(self._redeliver(stream, flow))
        else:
            self._begin(stream, flow)

    async def _redeliver(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        """Nothing of the log is sent before what was parked is done with, or it would overtake that."""
        epoch = flow.holding.epoch
        redelivered = await self.dead_letters.redeliver(stream, flow)
        if redelivered and flow.holding.epoch == epoch and flow.stage is Stage.REDELIVERING:
            self._begin(stream, flow)

    def _begin(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        caravan_flow = CaravanFlow(
            flow.application,
            flow.shard,
            flow.filter,
            flow.delivery.marker,
            flow.holding.epoch,
            lambda: stream.wake_for(flow),
            self.backfills.begin(flow, stream),
            lambda: stream.takes_rows(flow),
        )
        flow.begin(caravan_flow)
        self.fleet.add(caravan_flow)

    async def _rewind(self, stream: SubscriberStream, flow: PublisherFlow, to: Datamarker) -> None:
        """The application has less than the stored marker says."""
        try:
            await self.move(flow, to)
        except (WormholeError, KeyError) as error:  # KeyError: somebody deleted its record
            _log.error("%s cannot go back to %s: %s", flow.name, to, error, extra=flow.about)
            self.assigner.revoke(stream, flow, f"goes back to {to}")

    async def move(self, flow: PublisherFlow, to: Datamarker) -> None:
        """Set the flow's marker, forwards or backwards, in a new epoch; the subscriber that has the flow is asked to
        release it and gets it again at ``to``. Raises what the store raises, and ``KeyError`` when somebody deleted its
        record."""
        if not to.backfill and not flow.loss.unreadable:  # a record that cannot be read is written anew below
            # First: died between the two, it begins anew at the former datamarker, and nothing is missing.
            await self.backfills.restart(flow, f"its datamarker goes to {to}")
        async with self._controlling:  # an operator and the application may want it at once
            self.markers.drop(flow.key)
            flow.delivery.begin_move()
            try:
                await self.restore_record(flow, to)
                # The flow leaves the epoch that it was in: acks that are still on their way count no more.
                epoch = await asyncio.to_thread(self.store.rewind, flow.key, to)
                forwards = to.order > flow.delivery.durable.order
                flow.moved(epoch, to)
                if forwards:
                    pages = self.delivery_counter.moved_past(flow)
                    self.markers.put(MarkerWrite(flow.key, flow.holding.epoch, to, flow.filter.hash, pages))
            finally:
                flow.delivery.end_move()
        self.assigner.recall(flow, f"goes to {to}")
        self.assigner.changed()

    async def restore_record(self, flow: PublisherFlow, to: Datamarker) -> None:
        """Write the record of a flow anew whose record cannot be read, at ``to``. Raises what the store raises."""
        if flow.lost_record:
            record = await asyncio.to_thread(self.store.register, flow.key, to, "", flow.holding.epoch + 1)
            flow.restored(record.control)

    async def control(self, flow: PublisherFlow, change: Callable[[FlowControl], FlowControl]) -> None:
        """Change what was asked of the flow, durably.

        Raises what ``change`` and the store raise, and ``KeyError``; nothing is changed then."""
        async with self._controlling:
            while (wanted := change(flow.control)) != (was := flow.control):
                done = await asyncio.to_thread(self.store.set_control, flow.key, wanted, was)
                if not done:  # another publisher had the log meanwhile: what that one was asked holds
                    wanted = (await asyncio.to_thread(self.store.load, flow.application))[flow.key].control
                for one in (flow, self.present(flow)):
                    one.controlled(wanted)
                if done:
                    return

    def present(self, flow: PublisherFlow) -> PublisherFlow:
        """The present object of the flow: an application that was gone for a moment has new ones."""
        return self.assigner.flows.get(flow.key, flow)

    async def _forget_skipped(self, flow: PublisherFlow) -> None:
        """Updates that the marker has passed need not be skipped any more."""

        def rest(control: FlowControl) -> FlowControl:
            durable = flow.delivery.durable
            return replace(
                control, skip=tuple(item for item in control.skip if not is_behind(self.served.kind, item, durable))
            )

        try:
            await self.control(flow, rest)
        except (WormholeError, KeyError) as error:
            _log.warning("%s: what was skipped is not forgotten yet: %s", flow.name, error, extra=flow.about)

    def _acked(self, flow: PublisherFlow, epoch: int, marker: Datamarker) -> None:
        if epoch != flow.holding.epoch:
            return  # a rewind ended that epoch
        now = self.present(flow)
        if now.holding.epoch == epoch:
            now.acked(marker)
        flow.acked(marker)
        if marker.committed_at_us:
            ages = self.ack_ages.get(flow.application)
            if ages is None:
                ages = self.ack_ages[flow.application] = Histogram(catalogue.ACK_AGE)
            ages.observe(max(0.0, self.clock.wall() - marker.committed_at_us / 1e6))
        pages = self.delivery_counter.acknowledged(flow, marker)
        if pages or not flow.delivery.has_stored(marker, epoch):
            self.markers.put(MarkerWrite(flow.key, epoch, marker, flow.filter.hash, pages))

    def _stored(self, write: MarkerWrite) -> None:
        flow = self.assigner.flows.get(write.flow)
        if flow is not None and write.epoch == flow.holding.epoch:
            flow.delivery.stored(write.marker, write.epoch)
            self.backfills.stored(flow)
            if any(is_behind(self.served.kind, item, write.marker) for item in flow.control.skip):
                self._background.spawn(self._forget_skipped(flow))

    def _refused(self, write: MarkerWrite) -> None:
        flow = self.assigner.flows.get(write.flow)
        stream = None if flow is None else self.assigner.stream_of(flow)
        # A write of an epoch that this publisher has itself ended says nothing about the present one.
        if flow is not None and stream is not None and flow.holding.epoch == write.epoch and not flow.delivery.moving:
            cause = (
                f"its datamarker was refused by the marker store, which has another epoch than {flow.holding.epoch} of "
                "it, lost it, or takes no record so large (then the error before names the sizes)"
            )
            _log.error("%s is asked back: %s", flow.name, cause, extra=flow.about)
            self.assigner.revoke(stream, flow, cause)

    def _parking(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int, wanted: LetterArrived) -> None:
        max_frame, letter = stream.max_frame_bytes, replace(wanted.letter, parked_by=stream.identity)

        async def park() -> None:
            try:
                refused = await self.dead_letters.park(
                    flow, epoch, letter, wanted.parcel, max_frame, waits, stream.charge
                )
                if refused is not None:
                    stream.parked(flow, epoch, letter.id, refused)
            finally:
                wanted.done()

        def waits() -> bool:
            return flow.holding.epoch == epoch and flow in stream.flows

        self._background.spawn(park())

    async def _read(self, flows: Collection[PublisherFlow]) -> None:
        await self.delivery_counter.load(flows)
        await self.dead_letters.ask(flows)

    async def _prepare(self, flow: PublisherFlow) -> None:
        await self.backfills.prepare(flow)
        await self.dead_letters.load(flow)

    def _again(self, flow: PublisherFlow, cause: str) -> None:
        """Assign the flow anew, also one that is halted."""
        flow = self.present(flow)
        self.assigner.recall(flow, cause)
        flow.resume()
        self.assigner.changed()

    def _anew(self, flow: PublisherFlow, cause: str) -> None:
        """Assign the flow in a new epoch; one that is halted stays so."""
        self.assigner.recall(self.present(flow), cause)
        self.assigner.changed()

    def _lost(self, flow: PublisherFlow) -> None:
        self.assigner.recall(flow, "another publisher owns the flow")

    def _undone(self, stream: SubscriberStream, flow: PublisherFlow, transaction: str) -> None:
        """The application begins again at its datamarker, and hears why: a new epoch, so that nothing sent before
        counts."""
        flow.delivery.undone(transaction)
        cause = f"the database rolled back transaction {transaction}, of which a part was delivered"
        _log.warning("%s begins again at %s: %s", flow.name, flow.delivery.marker, cause, extra=flow.about)
        self.assigner.revoke(stream, flow, cause)

    def _failed(self, stream: SubscriberStream, flow: PublisherFlow, event: FlowFailed) -> None:
        self._close_counts(flow)
        if event.reason is FailedReason.RESEND:
            flow.release(f"sent again: {event.message}")
        elif event.reason is FailedReason.STALE_EPOCH and self._refused_epochs.answered(stream, flow, event):
            pass
        else:
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
            self.assigner.halt(stream, flow, event.message, event.update_id)
        self.assigner.changed()

    # -- by time

    async def record(self, flows: Collection[PublisherFlow]) -> None:
        """Make the present state of the flows known, their epochs above all: subscribers refuse one that is not
        recorded.

        Raises :class:`~wormhole.model.errors.WormholeError`.
        """
        async with self._recording:
            lead = self.lead_flows()
            await self.known.note(
                {
                    flow.key: FlowRecord(self.identity, flow.recorded, flow.holding.epoch, self.state(flow, lead).value)
                    async for flow in in_turns(flows)
                }
            )

    def lead_flows(self) -> frozenset[str]:
        """Names of the flows that travel with the lead caravan."""
        lead = self.fleet.lead
        return frozenset() if lead is None else frozenset(flow.name for flow in lead.flows)

    async def _measure_loop_delay(self) -> None:
        """How late the event loop is, and what a round costs it: the gather interval grows with both."""
        every = 0.1
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            self._lag = 0.5 * self._lag + 0.5 * max(0.0, loop.time() - due)
            reading_s = sum(stream.traffic.reading_s for stream in self.assigner.streams())
            self._round_cost.measured(self.clock.processor() - reading_s, self._rounds)
