"""A publisher's report about itself, as a message (``wormhole.wire.v1.PublisherStatus``)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from caravan.caravan import Caravan
from caravan.fleet import CaravanEvent
from publisher.flows.lag_and_headroom import Headroom
from publisher.operate.backfill_status import backfill_status
from publisher.operate.relay_status import relay_to_message
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole import __version__
from wormhole.coordination.standbys import owner_name
from wormhole.host.compiled import compiled_modules
from wormhole.host.local_admin import token_path
from wormhole.model.position import flow_name
from wormhole.model.problem import Problem
from wormhole.ports.marker_store import ReplayState
from wormhole.wire.markers import marker_to_message, position_to_message
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["flow_status", "replay_status", "status", "whole_status"]

_EVENTS = 50
_EVENTS_OF_ONE = 5
# The report on flows and subscribers grows with their number and with their texts: so a page of it has a bound,
# well below the 4 MiB of a gRPC message, and what it costs the loop to make one has as well.
_PAGE_BYTES: Final = 2 << 20
_PAGE_FLOWS: Final = 500
_LIST_BYTES: Final = 512 << 10  # the list of subscribers, and the names of flows in caravans, each take at most this


async def whole_status(publisher: Publisher) -> admin_pb2.PublisherStatus:
    """The publisher's state with all flows. Takes several turns of the event loop when there are many."""
    message = status(publisher)
    while message.more:
        await asyncio.sleep(0)
        page = status(publisher, after=message.more)
        message.flows.extend(page.flows)
        message.more = page.more
    return message


def status(publisher: Publisher, only: str = "", after: str = "") -> admin_pb2.PublisherStatus:
    """The publisher's state now, with a page of its flows. ``only``: of the flows only this one; ``after``: the page
    behind that flow, with nothing beside the flows.
    """
    if after:
        served = publisher.served
        message = admin_pb2.PublisherStatus(dataset=served.dataset.name, copy=served.copy, log=served.log)
    else:
        message = _but_for_flows(publisher)
    _add_flows(message, publisher, only, after)
    return message


def _add_flows(message: admin_pb2.PublisherStatus, publisher: Publisher, only: str, after: str) -> None:
    lead_flows = publisher.lead_flows()
    flows = {flow.name: flow for flow in publisher.assigner.flows.values()}
    names = sorted(name for name in flows if name > after) if not only else [only] if only in flows else []
    size = 0
    for count, name in enumerate(names):
        flow = flow_status(publisher, flows[name], lead_flows)
        size += flow.ByteSize()
        if count and (size > _PAGE_BYTES or count == _PAGE_FLOWS):
            message.more = names[count - 1]
            return
        message.flows.append(flow)


def _but_for_flows(publisher: Publisher) -> admin_pb2.PublisherStatus:
    now, lead = publisher.clock.wall(), publisher.fleet.lead
    message = admin_pb2.PublisherStatus(
        dataset=publisher.served.dataset.name,
        copy=publisher.served.copy,
        log=publisher.served.log,
        version=__version__,
        compiled=compiled_modules(),
        uptime_s=now - publisher.started,
        coordination=publisher.coordinator.contact.value,
        token_file=str(token_path(publisher.served.settings.state_dir)),
        host=publisher.host,
        pid=os.getpid(),
        http_address=publisher.http_address,
        admin_address=publisher.admin_address,
        end_unknown=publisher.log_watch.end_unknown,
        source=publisher.served.kind,
        log_base="" if publisher.log_watch.status is None else publisher.log_watch.status.base,
        term=publisher.ownership.term,
        candidate=publisher.ownership.candidate,
    )
    standby = problem_to_message(publisher.ownership.standby)
    if standby is not None:
        message.owner = owner_name(publisher.ownership.owners)
        message.standby.CopyFrom(standby)
    unreadable = publisher.unreadable
    if (found := problem_to_message(unreadable)) is not None:
        message.unreadable.CopyFrom(found)
    for problem in publisher.log_watch.problems:
        _warn(message, problem)
    for name, unserved in sorted(publisher.applications.unserved.items()):
        if unserved.why == unreadable:
            continue  # one cause, which is reported already
        text = f"application {name} is not served as configured: {unserved.why.text}"
        _warn(message, replace(unserved.why, text=text))
    limits = publisher.fleet.limits
    message.limits.CopyFrom(
        admin_pb2.CaravanLimits(
            caravans=limits.caravans,
            read_rate=limits.read_rate,
            total_read_rate=limits.total_read_rate,
            buffer_bytes=limits.buffer_bytes,
            buffered_bytes=publisher.fleet.governor.used(),
        )
    )
    end = publisher.log_watch.end()
    if end is None and lead is not None:
        end = lead.buffer.place
    if end is not None:
        message.log_end.CopyFrom(position_to_message(end))
    growth = publisher.log_watch.growth()
    if growth is not None:
        message.log_bytes_per_s = growth
    stuck = publisher.progress.stuck_s(publisher.clock.monotonic())
    if stuck is not None:
        message.stuck_s = stuck
    relay = publisher.log_watch.relay
    if relay is not None:
        message.relay.CopyFrom(relay_to_message(relay))
    history = publisher.fleet.history
    message.events.extend(_event(event) for event in tuple(history)[-_EVENTS:])
    names = _LIST_BYTES
    for _, caravan in sorted(publisher.fleet.caravans.items()):
        described = _caravan(caravan, caravan is lead, history, publisher.clock.monotonic())
        names -= described.ByteSize()
        if names < 0:
            unlisted = (
                f"the {len(described.flows)} flows of caravan {caravan.number} are not listed here: they are too many"
            )
            _warn(message, Problem(unlisted, code="in-progress"))
            del described.flows[:]
        message.caravans.append(described)
    left = _LIST_BYTES
    streams = publisher.assigner.streams()
    for count, stream in enumerate(streams):
        one = _subscriber(stream)
        left -= one.ByteSize()
        if left < 0:
            unlisted = f"{len(streams) - count} of {len(streams)} subscribers are not listed: they are too many"
            _warn(message, Problem(unlisted, code="in-progress"))
            break
        message.subscribers.append(one)
    return message


def _warn(message: admin_pb2.PublisherStatus, problem: Problem) -> None:
    message.problems.append(str(problem))
    message.warnings.add(text=problem.text, hint=problem.hint, code=problem.code)


def _subscriber(stream: SubscriberStream) -> admin_pb2.SubscriberStatus:
    return admin_pb2.SubscriberStatus(
        application=stream.info.application,
        subscriber=stream.info.id,
        address=stream.info.address,
        state="connected" if stream.connected else "unreachable",
        flows=len(stream.flows),
        cause=str(stream.problem),
        problem=problem_to_message(stream.problem),
    )


def flow_status(publisher: Publisher, flow: PublisherFlow, lead_flows: frozenset[str]) -> admin_pb2.FlowStatus:
    """One flow's state. ``lead_flows``: as :meth:`Publisher.lead_flows` says."""
    stream = publisher.assigner.stream_of(flow)
    credit, in_flight = (0, 0) if stream is None else stream.credit(flow)
    caravan_flow = flow.delivery.caravan_flow
    caravan = None if caravan_flow is None else publisher.fleet.caravan_of(caravan_flow)
    lag = publisher.log_watch.lag(flow.shard, flow.delivery.acknowledged_to, publisher.clock.wall())
    clock = publisher.clock.monotonic()
    problem = publisher.cause(flow)
    headroom = (
        publisher.log_watch.headroom(flow.delivery.marker)
        if flow.control.replay is None
        else Headroom(None, "a replay delivers the flow")
    )
    return admin_pb2.FlowStatus(
        flow=flow_name(flow.application, flow.shard),
        state=publisher.state(flow, lead_flows).value,
        subscriber=flow.holding.subscriber or ("" if flow.control.replay is None else flow.control.replay.subscriber),
        epoch=flow.holding.epoch,
        place=position_to_message(flow.delivery.place),
        marker=marker_to_message(flow.delivery.marker),
        credit=max(credit - in_flight, 0),  # one body that is larger than all credit goes out alone
        in_flight=in_flight,
        updates=flow.delivery.updates,
        bytes=flow.delivery.sent_bytes,
        bad_values=flow.delivery.bad_values,
        lag_s=lag.seconds,
        lag_bytes=lag.bytes,
        lag_transactions=lag.transactions,
        headroom_s=headroom.seconds,
        headroom_unknown=headroom.unknown,
        caravan=0 if caravan is None else caravan.number,
        filter=flow.filter.text,
        cause=str(problem),
        problem=problem_to_message(problem),
        paused=flow.control.paused,
        skip=flow.control.skip,
        dead_letters=flow.parking.count,
        halted_at=flow.holding.halted_at,
        loss_pending=flow.loss.open is not None or bool(flow.lost_record),
        handler=flow.holding.handler,
        credit_waited_s=flow.holding.credit_waited_s(clock),
        progress_s=flow.holding.stalled_s(clock, in_flight),
        replay=replay_status(publisher, flow),
        backfill=backfill_status(publisher, flow),
        verifies=stream is not None and stream.connected and stream.verifies,
        reads_relay=caravan is not None and publisher.log_watch.reads_relay(caravan.buffer.place),
        repair=flow.loss.repair,
    )


def replay_status(publisher: Publisher, flow: PublisherFlow) -> admin_pb2.ReplayStatus | None:
    """The mass replay that has the flow."""
    replay, run = flow.control.replay, publisher.replays.run_of(flow)
    if replay is None:
        return None
    message = admin_pb2.ReplayStatus(
        replay=replay.id,
        who=replay.who,
        state=replay.state.value,
        mode=admin_pb2.LATEST if replay.mode == "latest" else admin_pb2.LOG,
        where=replay.where,
        progress=replay.progress,
        started_s=replay.started_s,
        attempts=replay.attempts,
        opener=replay.opener,
    )
    if replay.begin is not None:
        message.begin.CopyFrom(marker_to_message(replay.begin))
    if replay.until is not None:
        message.until.CopyFrom(marker_to_message(replay.until))
    if replay.snapshot is not None:
        message.snapshot.CopyFrom(marker_to_message(replay.snapshot))
    if run is not None:
        message.updates, message.bytes = run.updates, run.bytes
        message.rate = run.heard(publisher.clock.monotonic())
    if replay.state is not ReplayState.NEEDS_REPLAY:
        message.lease_left_s = replay.lease_s if run is None else max(0.0, run.until - publisher.clock.monotonic())
    return message


def _event(event: CaravanEvent) -> admin_pb2.CaravanEvent:
    return admin_pb2.CaravanEvent(at_s=event.at, caravan=event.caravan, kind=event.kind.name, what=event.what)


def _caravan(caravan: Caravan, lead: bool, history: Iterable[CaravanEvent], now: float) -> admin_pb2.CaravanStatus:
    mine = [event for event in history if event.caravan == caravan.number]
    return admin_pb2.CaravanStatus(
        number=caravan.number,
        lead=lead,
        place=position_to_message(caravan.buffer.place),
        bytes_per_s=caravan.bytes_per_s(now),
        flows=sorted(flow.name for flow in caravan.flows),
        buffered_bytes=caravan.buffer.size,
        cause=caravan.cause,
        target_bytes_per_s=caravan.target,
        read_bytes=caravan.read_bytes,
        events=[_event(event) for event in mine[-_EVENTS_OF_ONE:]],
    )
