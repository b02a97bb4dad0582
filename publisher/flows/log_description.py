"""Describes the log to operators, as status messages and metrics: its caravans, relay, end and growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from caravan.caravan import Caravan
from caravan.fleet import CaravanEvent, Fleet
from publisher.flows.lag_and_headroom import LogWatch
from publisher.flows.part_reports import Row, warn
from wormhole.metrics import catalogue as c
from wormhole.model.problem import Problem
from wormhole.ports.log_source import RelayStatus, SourceStatus
from wormhole.wire.markers import position_to_message
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["caravan_samples", "describe_end", "describe_fleet", "log_samples", "relay_to_message"]

_EVENTS: Final = 50
_EVENTS_OF_ONE: Final = 5
_LIST_BYTES: Final = 512 << 10  # the most bytes for names of flows in all caravans


def describe_end(message: admin_pb2.PublisherStatus, watch: LogWatch, fleet: Fleet) -> None:
    """Add where the log ends, how fast it grows, and its problems."""
    message.end_unknown = watch.end_unknown
    message.log_base = "" if watch.status is None else watch.status.base
    for problem in watch.problems:
        warn(message, problem)
    end = watch.end()
    if end is None and fleet.lead is not None:
        end = fleet.lead.buffer.place
    if end is not None:
        message.log_end.CopyFrom(position_to_message(end))
    growth = watch.growth()
    if growth is not None:
        message.log_bytes_per_s = growth
    if watch.relay is not None:
        message.relay.CopyFrom(relay_to_message(watch.relay))


def describe_fleet(message: admin_pb2.PublisherStatus, fleet: Fleet, now: float) -> None:
    """Add the caravans, their limits and their last events. ``now``: seconds of the monotonic clock."""
    limits, history = fleet.limits, fleet.history
    message.limits.CopyFrom(
        admin_pb2.CaravanLimits(
            caravans=limits.caravans,
            read_rate=limits.read_rate,
            total_read_rate=limits.total_read_rate,
            buffer_bytes=limits.buffer_bytes,
            buffered_bytes=fleet.governor.used(),
        )
    )
    message.events.extend(_event(event) for event in tuple(history)[-_EVENTS:])
    names = _LIST_BYTES
    for _, caravan in sorted(fleet.caravans.items()):
        described = _caravan(caravan, caravan is fleet.lead, history, now)
        names -= described.ByteSize()
        if names < 0:
            unlisted = (
                f"the {len(described.flows)} flows of caravan {caravan.number} are not listed here: they are too many"
            )
            warn(message, Problem(unlisted, code="in-progress"))
            del described.flows[:]
        message.caravans.append(described)


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


def relay_to_message(relay: RelayStatus) -> admin_pb2.RelayStatus:
    """The message of ``relay``."""
    message = admin_pb2.RelayStatus(
        mode=relay.mode,
        stretches=[
            admin_pb2.RelayStretch(begin=position_to_message(begin), end=position_to_message(end))
            for begin, end in relay.stretches
        ],
        bytes=relay.bytes,
        log_bytes=relay.log_bytes,
        budget_bytes=relay.budget_bytes,
        slot_budget_bytes=relay.slot_budget_bytes,
        keeps_slot=relay.keeps_slot,
        readers=relay.readers,
        unsynced_bytes=relay.unsynced_bytes,
        problem=problem_to_message(relay.problem),
    )
    if relay.begin is not None:
        message.begin.CopyFrom(position_to_message(relay.begin.order))
        message.begin_committed_s = relay.begin.committed_at_us / 1e6
    if relay.tip is not None:
        message.tip.CopyFrom(position_to_message(relay.tip.order))
    if relay.synced is not None:
        message.synced.CopyFrom(position_to_message(relay.synced))
    if relay.held is not None:
        message.held.CopyFrom(position_to_message(relay.held))
    return message


def log_samples(status: SourceStatus, now: float) -> Iterator[Row]:
    """The metrics of the source's status. ``now``: seconds since 1970."""
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
        yield from _relay(status.relay, now)


def _relay(relay: RelayStatus, now: float) -> Iterator[Row]:
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


def caravan_samples(fleet: Fleet, now: float) -> Iterator[Row]:
    """The metrics of the caravans. ``now``: seconds of the monotonic clock."""
    lead = fleet.lead
    others = [caravan for caravan in fleet.caravans.values() if caravan is not lead]
    leading = [lead] if lead is not None else []
    yield c.CARAVANS, len(fleet.caravans)
    yield c.CARAVANS_MOST, fleet.limits.caravans
    yield c.CARAVANS_STARTED, fleet.started
    for role, caravans in (("lead", leading), ("other", others)):
        yield c.CARAVAN_FLOWS, sum(len(caravan.flows) for caravan in caravans), role
        yield c.CARAVAN_RATE, sum(caravan.bytes_per_s(now) for caravan in caravans), role
    yield c.CARAVAN_BEHIND, _furthest_behind(fleet, others)
    yield c.CARAVAN_BUFFER, fleet.governor.used()
    yield c.CARAVAN_BUFFER_MOST, fleet.limits.buffer_bytes


def _furthest_behind(fleet: Fleet, others: list[Caravan]) -> int | None:
    if fleet.lead is None:
        return None
    end, between = fleet.lead.buffer.place, fleet.governor.log_map.between
    behind = [between(caravan.buffer.place, end) for caravan in others]
    return None if None in behind else max((some for some in behind if some is not None), default=0)
