"""The publisher's metrics, read from its state when somebody asks: nothing is done for them per update."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator

from caravan.caravan import Caravan
from publisher.operate.backfill_status import backfill_status
from publisher.operate.readiness import readiness
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from wormhole import __version__
from wormhole.coordination.port import Contact
from wormhole.coordination.standbys import candidate_of, why_not
from wormhole.host.compiled import compiled_modules, hot_modules
from wormhole.host.waiting import in_turns
from wormhole.metrics import HistogramSample, Metric, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.process import process_figures
from wormhole.ports.log_source import RelayStatus
from wormhole.push.allowance import WORK_PER_S
from wormhole.push.connection import Refusal
from wormhole.wire.verification_status import remaining

__all__ = ["collect"]


async def collect(publisher: Publisher) -> list[Sample | HistogramSample]:
    """All samples of now. Takes several turns of the event loop when there are many flows."""
    served = publisher.served
    log = (served.dataset.name, served.copy, served.log)
    samples: list[Sample | HistogramSample] = []

    def add(metric: Metric, value: float | None, *labels: str) -> None:
        if value is not None:
            samples.append(Sample(metric, value, (*log, *labels)))

    for metric, value, *labels in [*await asyncio.to_thread(_process), *_whole(publisher)]:
        add(metric, value, *labels)
    if served.trust is not None:
        ends, reloads = c.PUBLISHER_CERTIFICATE_ENDS, c.PUBLISHER_CERTIFICATE_RELOADS
        samples += await asyncio.to_thread(served.trust.samples, ends, reloads, *log)
    samples.append(publisher.markers.write_times.sample(*log))
    samples += [ages.sample(*log, application) for application, ages in publisher.ack_ages.items()]
    for stream in publisher.assigner.streams():
        who, traffic = (stream.info.application, stream.info.id), stream.traffic
        add(c.PUSH_CONNECTED, stream.connected, *who)
        add(c.PUSH_CONNECTIONS, traffic.connections, *who)
        add(c.PUSH_MESSAGES, traffic.messages, *who)
        add(c.PUSH_BATCHES, traffic.batches, *who)
        add(c.PUSH_BYTES, traffic.bytes, *who)
        add(c.PUSH_ACKS, traffic.acks, *who)
        add(c.PUSH_RESTS, traffic.rests, *who)
        add(c.PUSH_CHARGED, traffic.charged / WORK_PER_S, *who)
        for why in Refusal:
            add(c.PUSH_REFUSED, traffic.refused[why], *who, why.value)
    lead_flows = publisher.lead_flows()
    states: Counter[tuple[str, PublisherFlowState]] = Counter()
    async for flow in in_turns(publisher.assigner.flows.values()):
        state = publisher.state(flow, lead_flows)
        states[flow.application, state] += 1
        for metric, value in _flow(publisher, flow, state):
            add(metric, value, flow.application, flow.shard)
    for application in {application for application, _ in states}:
        add(c.AUDIT_MISMATCHES, publisher.delivery_counter.mismatches.get(application, 0), application)
    for (application, state), number in states.items():
        add(c.FLOWS, number, application, state.value)
    return samples


_Row = tuple[Metric, float | None] | tuple[Metric, float | None, str] | tuple[Metric, float | None, str, str]


def _process() -> list[_Row]:
    """Reads files."""
    compiled, hot = len(compiled_modules()), len(hot_modules())
    figures = process_figures()
    return [
        (c.PUBLISHER_BUILD, 1, __version__, "yes" if compiled == hot else "partly" if compiled else "no"),
        (c.PUBLISHER_MEMORY, figures.resident_bytes),
        (c.PUBLISHER_CPU, figures.cpu_seconds),
        (c.PUBLISHER_FILES, figures.open_files),
    ]


def _whole(publisher: Publisher) -> Iterator[_Row]:
    """What is not about single flows or subscribers."""
    now = publisher.clock.monotonic()
    yield c.PUBLISHER_START, publisher.started
    yield c.PUBLISHER_READY, readiness(publisher, now).ready
    yield c.PUBLISHER_LOOP_DELAY, publisher.loop_delay
    coordinator = publisher.coordinator
    yield c.PUBLISHER_COORDINATION, coordinator.contact is Contact.CONNECTED
    if coordinator.lease_s() != math.inf:
        yield c.PUBLISHER_COORDINATION_SILENCE, max(0.0, now - coordinator.last_contact())
    yield from _ownership(publisher)
    yield c.PUBLISHER_UNSERVED, len(publisher.applications.unserved)
    yield c.PARKING_BYTES, publisher.parking_room.used
    yield c.PARKING_MOST, publisher.parking_room.most
    yield c.MARKERS_WAITING, publisher.markers.waiting
    yield c.MARKERS_FAILING, bool(publisher.markers.problem)
    yield from _log(publisher, now)
    yield from _caravans(publisher, now)
    yield from _rows(publisher)


def _ownership(publisher: Publisher) -> Iterator[_Row]:
    ownership = publisher.ownership
    stands_by, owners = bool(ownership.standby), ownership.owners
    yield c.PUBLISHER_SENDS, None if stands_by else ownership.may_send()
    if owners is None:
        return
    yield c.PUBLISHER_OWNS, not stands_by, publisher.served.dataset.group(publisher.served.copy)
    yield c.PUBLISHER_TERM, ownership.term or None
    me = candidate_of(owners, ownership.candidate)
    if stands_by and me is not None:
        yield c.PUBLISHER_STANDBY_READY, not why_not(me) or me.promotable


def _log(publisher: Publisher, now: float) -> Iterator[_Row]:
    watch, fleet = publisher.log_watch, publisher.fleet
    yield c.READER_BYTES, fleet.read_bytes_total
    yield c.READER_TRANSACTIONS, watch.transactions
    yield c.READER_UPDATES, watch.updates
    yield c.LOG_STUCK, publisher.progress.stuck_s(now) or 0.0
    yield c.LOG_GROWTH, watch.growth()
    status, lead = watch.status, fleet.lead
    if lead is not None:
        yield c.LOG_UNREAD, watch.behind(lead.buffer.place)
    if status is not None:
        yield c.LOG_FILES, len(status.files)
        yield c.LOG_SIZE, sum(size for _, size in status.files)
        yield c.LOG_BUDGET, status.budget_bytes or None
        yield c.LOG_PINNED, status.pinned_bytes
        for code, number in Counter(one.code or "other" for one in status.problems).items():
            yield c.LOG_PROBLEMS, number, code
        for slot in status.slots:
            yield c.LOG_SLOT_KEPT, slot.kept_bytes, slot.name
            yield c.LOG_SLOT_LEFT, slot.left_bytes, slot.name
            yield c.LOG_SLOT_LOST, slot.lost, slot.name
            yield c.LOG_SLOT_UNSYNCED, slot.unsynced, slot.name
            yield c.LOG_SLOT_CATALOG_AGE, slot.catalog_age, slot.name
        if status.relay is not None:
            yield from _relay(status.relay, publisher.clock.wall())


def _relay(relay: RelayStatus, now: float) -> Iterator[_Row]:
    yield c.RELAY_RECORDING, None if relay.mode == "off" else not relay.problem
    yield c.RELAY_BYTES, relay.bytes
    yield c.RELAY_BUDGET, relay.budget_bytes
    yield c.RELAY_LOG_BYTES, relay.log_bytes
    begun_us = 0 if relay.begin is None else relay.begin.committed_at_us
    yield c.RELAY_OLDEST, max(0.0, now - begun_us / 1e6) if begun_us else None
    yield c.RELAY_UNSYNCED, relay.unsynced_bytes if relay.mode == "hold" else None
    yield c.RELAY_HOLES, max(0, len(relay.stretches) - 1)
    yield c.RELAY_READERS, relay.readers
    yield c.RELAY_ONLY, relay.held is not None


def _caravans(publisher: Publisher, now: float) -> Iterator[_Row]:
    fleet, lead = publisher.fleet, publisher.fleet.lead
    others = [caravan for caravan in fleet.caravans.values() if caravan is not lead]
    leading = [lead] if lead is not None else []
    yield c.CARAVANS, len(fleet.caravans)
    yield c.CARAVANS_MOST, fleet.limits.caravans
    yield c.CARAVANS_STARTED, fleet.started
    for role, caravans in (("lead", leading), ("other", others)):
        yield c.CARAVAN_FLOWS, sum(len(caravan.flows) for caravan in caravans), role
        yield c.CARAVAN_RATE, sum(caravan.bytes_per_s(now) for caravan in caravans), role
    yield c.CARAVAN_BEHIND, _furthest_behind(publisher, lead, others)
    yield c.CARAVAN_BUFFER, fleet.governor.used()
    yield c.CARAVAN_BUFFER_MOST, fleet.limits.buffer_bytes


def _rows(publisher: Publisher) -> Iterator[_Row]:
    scans = publisher.scans
    status = scans.status
    yield c.ROWS_READ, scans.rows
    yield c.ROWS_CHUNKS, scans.chunks
    yield c.ROWS_DISCARDED, scans.discards
    yield c.ROWS_RATE, status.rate if scans.running else 0.0
    yield c.ROWS_WAIT, scans.wanted and bool(scans.problem or status.waits)


def _furthest_behind(publisher: Publisher, lead: Caravan | None, others: list[Caravan]) -> int | None:
    if lead is None:
        return None
    between = publisher.fleet.governor.log_map.between
    behind = [between(caravan.buffer.place, lead.buffer.place) for caravan in others]
    return None if None in behind else max((some for some in behind if some is not None), default=0)


def _flow(
    publisher: Publisher, flow: PublisherFlow, state: PublisherFlowState
) -> Iterator[tuple[Metric, float | None]]:
    watch, clock = publisher.log_watch, publisher.clock.monotonic()
    lag = watch.lag(flow.shard, flow.delivery.acknowledged_to, publisher.clock.wall())
    stream = publisher.assigner.stream_of(flow)
    credit, in_flight = (0, 0) if stream is None else stream.credit(flow)
    # 0 where nothing follows. Otherwise no age means that nothing was read there, or that the log was not measured yet.
    yield c.FLOW_LAG, lag.seconds if lag.seconds or lag.bytes == 0 else None
    yield c.FLOW_LAG_BYTES, lag.bytes
    # What is replayed does not need the log at its datamarker.
    yield c.FLOW_HEADROOM, None if flow.control.replay is not None else watch.headroom(flow.delivery.marker).seconds
    yield c.FLOW_HELD, state is PublisherFlowState.HELD
    yield c.FLOW_PAUSED, bool(flow.control.paused)
    yield c.FLOW_NEEDS_REPLAY, state is PublisherFlowState.NEEDS_REPLAY
    yield c.FLOW_REPLAYED, flow.delivery.replayed
    backfill = backfill_status(publisher, flow)
    if backfill is not None:
        yield c.FLOW_BACKFILL_ROWS, backfill.rows
        yield c.FLOW_BACKFILL_SHARE, backfill.share if backfill.HasField("share") else None
        yield c.FLOW_BACKFILL_REFUSED, sum(table.state == "refused" for table in backfill.progress)
        if backfill.verified:
            yield c.FLOW_VERIFY_COMPARED, sum(table.compared for table in backfill.verified)
            yield c.FLOW_VERIFY_DIFFERENCES, sum(map(remaining, backfill.verified))
    yield c.FLOW_UPDATES, flow.delivery.updates
    yield c.FLOW_BYTES, flow.delivery.sent_bytes
    yield c.FLOW_BAD_VALUES, flow.delivery.bad_values
    yield c.FLOW_LOSSES, flow.loss.count
    yield c.FLOW_DEAD_LETTERS, flow.parking.count
    yield c.FLOW_CREDIT, credit
    yield c.FLOW_IN_FLIGHT, in_flight
    yield c.FLOW_CREDIT_WAIT, flow.holding.credit_waited_s(clock)
    yield c.FLOW_STALLED, flow.holding.stalled_s(clock, in_flight)
    report = flow.holding.handler
    if report is not None:
        yield c.FLOW_HANDLED, report.updates
        yield c.FLOW_HANDLER_TIME, report.busy_s
        yield c.FLOW_HANDLER_FAILURES, report.failures
        yield c.FLOW_QUEUED, report.queued_bytes
