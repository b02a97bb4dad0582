"""Publishers, shards, caravans and subscribers as rows and as objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from wormhole.admin.admin_service import publisher_name
from wormhole.wire.conditions import State, log_condition
from wormhole.wire.lag import lag_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.flows import lag_text
from wormholectl.show.lists import Listing
from wormholectl.show.places import Status, native_place, place_text, shown_place
from wormholectl.show.printer import size, span
from wormholectl.show.relays import relay_line

__all__ = ["CARAVANS", "PUBLISHERS", "SHARDS", "SUBSCRIBERS"]

_EVENTS: Final = 10


def _rate(bytes_per_s: float) -> str:
    return f"{size(bytes_per_s)}/s" if bytes_per_s else "-"


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _caravan_notes(status: Status) -> Iterable[str]:
    limits = status.limits
    yield (
        f"at most {limits.caravans} caravans, each {_rate(limits.read_rate)}, together "
        f"{_rate(limits.total_read_rate)}; change buffers "
        f"{size(limits.buffered_bytes)} of {size(limits.buffer_bytes)}"
    )
    for event in status.events[-_EVENTS:]:
        yield f"{_time(event.at_s).astimezone():%H:%M:%S}  caravan {event.caravan}: {event.what}"


def _caravan_rows(status: Status) -> Iterable[Sequence[str]]:
    for caravan in status.caravans:
        yield (
            f"{caravan.number}{' (lead)' if caravan.lead else ''}",
            shown_place(status, caravan.place),
            f"{size(caravan.bytes_per_s)}/s",
            _rate(caravan.target_bytes_per_s),
            size(caravan.read_bytes),
            size(caravan.buffered_bytes),
            ", ".join(caravan.flows) or "-",
            caravan.cause,
        )


def _caravan_objects(status: Status) -> Iterable[dict[str, Any]]:
    for caravan in status.caravans:
        yield {
            "caravan": caravan.number,
            "lead": caravan.lead,
            "place": place_text(caravan.place),
            "native_place": native_place(status, caravan.place),
            "bytes_per_s": caravan.bytes_per_s,
            "target_bytes_per_s": caravan.target_bytes_per_s or None,
            "read_bytes": caravan.read_bytes,
            "buffered_bytes": caravan.buffered_bytes,
            "flows": list(caravan.flows),
            "cause": caravan.cause,
            "events": [
                {"at": _time(event.at_s).isoformat().replace("+00:00", "Z"), "what": event.what}
                for event in caravan.events
            ],
        }


def _subscriber_rows(status: Status) -> Iterable[Sequence[str]]:
    for one in status.subscribers:
        yield (f"{one.application}/{one.subscriber}", one.address, one.state, str(one.flows), one.cause)


def _subscriber_objects(status: Status) -> Iterable[dict[str, Any]]:
    for one in status.subscribers:
        yield {
            "application": one.application,
            "subscriber": one.subscriber,
            "address": one.address,
            "state": one.state,
            "flows": one.flows,
            "cause": one.cause,
        }


CARAVANS: Final = Listing(
    "caravans",
    ("CARAVAN", "PLACE", "READS", "TARGET", "READ", "BUFFER", "FLOWS", "CAUSE"),
    _caravan_rows,
    _caravan_objects,
    _caravan_notes,
)
SUBSCRIBERS: Final = Listing(
    "subscribers", ("SUBSCRIBER", "ADDRESS", "STATE", "FLOWS", "CAUSE"), _subscriber_rows, _subscriber_objects
)


def _publisher_rows(status: Status) -> Iterable[Sequence[str]]:
    growth = f"{size(status.log_bytes_per_s)}/s" if status.HasField("log_bytes_per_s") else "-"
    condition = log_condition(status)
    yield (
        publisher_name(status),
        status.host or "-",
        str(status.pid or "-"),
        status.version,
        span(status.uptime_s),
        status.coordination,
        shown_place(status, status.log_end) if status.HasField("log_end") else "-",
        growth,
        str(len(status.flows)),
        str(len(status.caravans)),
        str(len(status.subscribers)),
        str(status.term or "-"),
        "" if condition.state is State.NO_SHARD else str(condition),
    )


def _shards(status: Status) -> dict[str, list[admin_pb2.FlowStatus]]:
    shards: dict[str, list[admin_pb2.FlowStatus]] = {}
    for flow in status.flows:
        shards.setdefault(flow.flow.partition("/")[2], []).append(flow)
    return dict(sorted(shards.items()))


def _shard_rows(status: Status) -> Iterable[Sequence[str]]:
    for shard, flows in _shards(status).items():
        last = max(flows, key=lambda flow: lag_of(status, flow).order)
        applications = ", ".join(sorted(flow.flow.partition("/")[0] for flow in flows))
        yield (
            shard,
            publisher_name(status),
            str(len(flows)),
            lag_text(lag_of(status, last)),
            f"{applications}; last is {last.flow}",
        )


def _shard_objects(status: Status) -> Iterable[dict[str, Any]]:
    for shard, flows in _shards(status).items():
        yield {
            "shard": shard,
            "flows": sorted(flow.flow for flow in flows),
            "lag_s": max(flow.lag_s for flow in flows),
            "lag_bytes": max((flow.lag_bytes for flow in flows if flow.HasField("lag_bytes")), default=None),
        }


PUBLISHERS: Final = Listing(
    "publishers",
    (
        "PUBLISHER",
        "HOST",
        "PID",
        "VERSION",
        "UP",
        "COORDINATION",
        "LOG END",
        "LOG GROWS",
        "FLOWS",
        "CARAVANS",
        "SUBSCRIBERS",
        "TERM",
        "CAUSE",
    ),
    _publisher_rows,
    lambda status: (),
    lambda status: [f"{publisher_name(status)}: {relay_line(status.relay)}"] if status.HasField("relay") else [],
)
SHARDS: Final = Listing("shards", ("SHARD", "OWNER", "FLOWS", "LAG", "APPLICATIONS"), _shard_rows, _shard_objects)
