"""Makes the parts of a publisher and joins them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial

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
from publisher.flows.dialling import DiallingApplications
from publisher.flows.epoch_openings import EpochOpenings
from publisher.flows.flow_states import FlowStates
from publisher.flows.housekeeping import Housekeeping
from publisher.flows.known_flows import KnownFlows
from publisher.flows.loop_pace import LoopPace
from publisher.flows.losses import Losses
from publisher.flows.lost_rows import LostRows
from publisher.flows.ownership import Ownership
from publisher.flows.records import FlowRecords
from publisher.flows.refused_epochs import RefusedEpochs
from publisher.flows.registrar import Registrar
from publisher.flows.replay_parking import ReplayParking
from publisher.flows.replays import Replays
from publisher.flows.row_scans import RowScans
from publisher.flows.served_applications import ServedApplications
from publisher.flows.subscriber_answers import Deliveries
from publisher.flows.tailed_log import TailedLog
from publisher.flows.this_process import ThisProcess
from publisher.operate.attach_reports import AttachReports
from publisher.operate.backfill_changes import BackfillChanges
from publisher.operate.backfill_status import BackfillReports
from publisher.operate.control import Control
from publisher.operate.flow_changes import FlowChanges
from publisher.operate.flow_reports import FlowReports
from publisher.operate.forget_changes import ForgetChanges
from publisher.operate.letter_changes import LetterChanges
from publisher.operate.metrics import Metrics
from publisher.operate.operated import Operated
from publisher.operate.operators import Operators
from publisher.operate.place_changes import PlaceChanges
from publisher.operate.readiness import ReadinessCheck
from publisher.operate.relay_trim import RelayTrim
from publisher.operate.replay_forwarding import ReplayForwarding
from publisher.operate.replay_requests import ReplayRequests
from publisher.operate.status import StatusReports
from publisher.publisher import Publisher
from publisher.push.attach_service import AttachListener, AttachService, attach_point
from publisher.push.attach_tokens import AttachTokens
from publisher.push.attached import AttachedSubscribers
from publisher.push.observed import Observers
from publisher.push.stream import Dialer
from wormhole.coordination.port import Coordinator
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogRelay, LogSource
from wormhole.ports.marker_store import MarkerStore
from wormhole.ports.table_source import TableSource
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.room import Room
from wormhole.push.session import MAX_VERSION, MIN_VERSION
from wormhole.wire.v1 import push_pb2

__all__ = ["operated", "wired"]

_BESIDE_AN_UPDATE = 2 << 20


def _no_tables() -> TableSource:
    raise UsageError("existing rows of this log cannot be read", hint='use `start = "latest"`')


def wired(
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
    insecure: bool = False,
) -> Publisher:
    """The publisher of ``source``. Each part is made after the parts that it needs.

    ``relay``: the log's relay, or ``None``. The argument has no default, because a forgotten relay would not be
    noticed. ``open_tables``: opens the rows of the log's tables. ``boundaries``: stores where chunks of these rows end.
    ``ownership``: how the publisher becomes the owner of the log; by default by its registration alone. ``insecure``:
    whether subscribers may dial from other hosts without TLS.
    """
    settings, dataset = served.settings, served.dataset
    ownership = ownership or Ownership(coordinator, fenced=settings.markers == "zookeeper", clock=clock)
    known = known or KnownFlows(coordinator)
    hello = _hello(served, store.owner, clock)
    process = ThisProcess(hello.publisher, ownership.host or socket.gethostname(), clock.wall())
    background = BackgroundTasks()
    pace = LoopPace(clock)

    def held(flow: CaravanFlow, error: WormholeError) -> None:
        losses.held(flow, error)

    def advanced(segment: Segment, before: Datamarker) -> None:
        pace.count_round()
        log.watch.read(segment)
        applications.see(segment.runs)
        observers.advanced()

    limits, events = limits_of(dataset.caravans, settings.change_buffer), FleetEvents(held, advanced)
    fleet = Fleet(source, limits, events, pace.gather_s, lambda: pace.delay, clock=clock)
    log = TailedLog(source, fleet, clock)
    scans = RowScans(fleet, open_tables, boundaries or MemoryBoundaries(), dataset.existing_rows, clock)
    # Memory for the updates that all subscribers together send for parking: one of the largest size with its envelope.
    room = Room(settings.max_update_bytes + _BESIDE_AN_UPDATE)
    # Decoding updates for parking takes processor time, and storing them waits for a disk or for ZooKeeper.
    peer_threads = PeerThreads("letters-opened", 1, clock)
    letter_threads = PeerThreads("letters-stored", 2, clock)
    timeouts = Timeouts(settings.grace_period, settings.handler_timeout)
    attached = AttachedSubscribers(timeouts.grace + timeouts.handler, clock)
    dialer = Dialer(hello, served.trust, attached, room, letters=peer_threads, clock=clock)
    assigner = Assigner(store, fleet, dialer, timeouts, ownership, clock)
    behind: set[str] = set()
    registrar = Registrar(store, source, served.log, known, clock)
    applications = Applications(served, source, registrar, coordinator, assigner, behind, clock)
    counter = DeliveryCounter(store, clock)
    records = FlowRecords(served.kind, store, assigner, counter, background, behind, clock)
    dead_letters = DeadLetterOffice(store.dead_letters(), settings.dead_letters, assigner, letter_threads, clock)
    backfills = Backfills(served, assigner, records, scans, LostRows(relay), background, clock)
    states = FlowStates(process.identity, known, ownership, fleet, assigner.flows)
    openings = EpochOpenings(records, states, dead_letters, backfills)
    parking = ReplayParking(dead_letters, room, peer_threads, clock)
    replays = Replays(source, records, assigner, openings, parking, background, clock)
    losses = Losses(source, assigner, fleet, background, backfills, records, clock)
    refused_epochs = RefusedEpochs(records, assigner, ownership, background, clock)
    deliveries = Deliveries(assigner, records, dead_letters, backfills, losses, refused_epochs, background)
    assigner.join(deliveries, openings)
    tokens = AttachTokens(coordinator.watch_tokens, clock)
    following = ServedApplications(coordinator, dataset, served.copy, clock)
    point = attach_point(settings, served.log, f"{served.copy}@{process.host}", tls=served.trust is not None)
    announce = partial(coordinator.register_attach, point=point)
    dialling = DiallingApplications(following, tokens, assigner, attached, announce)
    observers = Observers(hello, fleet, applications.wanted, ownership.may_send, clock)
    admission = AttachService(attached, dialling.config, tokens, observers, served.trust, settings, insecure=insecure)
    return Publisher(
        served=served,
        process=process,
        clock=clock,
        coordinator=coordinator,
        relay=relay,
        ownership=ownership,
        log=log,
        pace=pace,
        caps=ConfiguredLimits(coordinator, dataset, fleet, scans, clock),
        scans=scans,
        applications=applications,
        assigner=assigner,
        records=records,
        states=states,
        dead_letters=dead_letters,
        replays=replays,
        backfills=backfills,
        losses=losses,
        listener=AttachListener(admission, dialling.run, clock),
        housekeeping=Housekeeping(log, assigner, applications, replays, backfills, (dead_letters, states), clock),
        background=background,
        parking_room=room,
        peer_threads=peer_threads,
        letter_threads=letter_threads,
    )


def operated(publisher: Publisher) -> Operated:
    """The parts of ``publisher`` that answer operators."""
    served, process, clock = publisher.served, publisher.process, publisher.clock
    log, records = publisher.log, publisher.records
    coordinator, ownership, applications = publisher.coordinator, publisher.ownership, publisher.applications
    assigner, replays, states, letters = publisher.assigner, publisher.replays, publisher.states, publisher.dead_letters
    shards = served.dataset.shard_by.count or 1
    backfill_reports = BackfillReports(publisher.backfills, publisher.scans, assigner, shards)
    reports = FlowReports(log, assigner, states, replays, backfill_reports, clock)
    operators = Operators(applications, ownership, assigner.flows, coordinator, clock)
    places = PlaceChanges(records, assigner, publisher.losses, log, reports, clock)
    forgetting = ForgetChanges(places, records, assigner, letters, applications, states, operators)
    letter_changes = LetterChanges(letters, replays, reports, operators)
    changes = (
        FlowChanges(served.kind, records, assigner, replays, log, reports, clock),
        BackfillChanges(publisher.backfills, assigner, reports, clock),
        places,
        letter_changes,
    )
    readiness = ReadinessCheck(served, ownership, applications, log, records, clock)
    attach = AttachReports(publisher.listener)
    described = (log, ownership, applications, assigner, attach)
    measured = (publisher.pace, ownership, applications, records, assigner, log, publisher.scans, attach)
    return Operated(
        reports=StatusReports(served, process, coordinator, described, reports, clock),
        flow_reports=reports,
        metrics=Metrics(served, process, coordinator, readiness, measured, reports, clock),
        readiness=readiness,
        control=Control(operators, reports, applications, replays, forgetting, changes),
        replays=ReplayRequests(served, process.identity, replays, applications, reports, operators, clock),
        forwarding=ReplayForwarding(replays, publisher.listener.service.attached, served.trust),
        letters=letter_changes,
        relay=RelayTrim(served.log, log, publisher.relay, assigner, operators),
        counter=records.counter,
        flows=assigner.flows,
    )


def _hello(served: Served, owner: str, clock: Clock) -> push_pb2.Hello:
    host, settings = socket.gethostname(), served.settings
    return push_pb2.Hello(
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        publisher=f"{served.dataset.name}/{served.copy}/{served.log}@{host}:{os.getpid()}",
        dataset=served.dataset.name,
        copy=served.copy,
        log=served.log,
        heartbeat_ms=round(settings.heartbeat * 1000),
        max_frame_bytes=settings.max_frame,
        owner=owner or f"{host}:{os.getpid()}:{clock.wall()}",
    )
