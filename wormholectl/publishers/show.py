"""Declares the columns of the tables of publishers, shards, caravans and subscribers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from wormhole.admin.admin_service import publisher_name
from wormhole.wire.lag import lag_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.columns import ShownColumn, ShownTable, given
from wormholectl.show.flows import lag_text
from wormholectl.show.lists import PUBLISHER, Listing, rate
from wormholectl.show.places import Status, native_place, place_text, shown_place
from wormholectl.show.printer import size, span, utc
from wormholectl.show.relays import relay_line

__all__ = ["CARAVANS", "PUBLISHERS", "SHARDS", "SUBSCRIBERS"]

_EVENTS: Final = 10


class _Caravan(NamedTuple):
    status: Status
    reported: admin_pb2.CaravanStatus

    @property
    def name(self) -> str:
        return f"{self.reported.number}{' (lead)' if self.reported.lead else ''}"


def _events(one: _Caravan) -> list[dict[str, Any]]:
    return [{"at": utc(event.at_s), "what": event.what} for event in one.reported.events]


def _caravan_notes(status: Status) -> Iterable[str]:
    limits = status.limits
    each, together = (rate(one) if one else "-" for one in (limits.read_rate, limits.total_read_rate))
    yield (
        f"at most {limits.caravans} caravans, each {each}, together {together}; change buffers "
        f"{size(limits.buffered_bytes)} of {size(limits.buffer_bytes)}"
    )
    for event in status.events[-_EVENTS:]:
        yield f"{datetime.fromtimestamp(event.at_s).astimezone():%H:%M:%S}  caravan {event.caravan}: {event.what}"


def _publisher_notes(status: Status) -> Iterable[str]:
    if status.HasField("relay"):
        yield f"{publisher_name(status)}: {relay_line(status.relay)}"
    if status.HasField("attach"):
        attach = status.attach
        refused = "".join(f"; {one.attempts} refused ({one.code})" for one in attach.refused)
        unfinished = f"; {attach.unfinished} without a welcome" if attach.unfinished else ""
        listens = f"subscribers dial {attach.address}" if attach.address else "subscribers cannot dial it"
        yield f"{publisher_name(status)}: {listens}: {attach.attached} connected{refused}{unfinished}"


CARAVANS: Final = Listing(
    "caravans",
    ShownTable[_Caravan](
        ShownColumn("CARAVAN", None, lambda one: one.name),
        ShownColumn(None, "caravan", lambda one: one.reported.number),
        ShownColumn(None, "lead", lambda one: one.reported.lead),
        ShownColumn("PLACE", None, lambda one: shown_place(one.status, one.reported.place)),
        ShownColumn(None, "place", lambda one: place_text(one.reported.place)),
        ShownColumn(None, "native_place", lambda one: native_place(one.status, one.reported.place)),
        ShownColumn("READS", "bytes_per_s", lambda one: one.reported.bytes_per_s, rate),
        ShownColumn("TARGET", "target_bytes_per_s", lambda one: one.reported.target_bytes_per_s or None, rate),
        ShownColumn("READ", "read_bytes", lambda one: one.reported.read_bytes, size),
        ShownColumn("BUFFER", "buffered_bytes", lambda one: one.reported.buffered_bytes, size),
        ShownColumn("FLOWS", "flows", lambda one: list(one.reported.flows), lambda flows: ", ".join(flows) or "-"),
        ShownColumn("CAUSE", "cause", lambda one: one.reported.cause),
        ShownColumn(None, "events", _events),
    ),
    lambda status: (_Caravan(status, one) for one in status.caravans),
    _caravan_notes,
)
SUBSCRIBERS: Final = Listing(
    "subscribers",
    ShownTable[admin_pb2.SubscriberStatus](
        ShownColumn("SUBSCRIBER", None, lambda one: f"{one.application}/{one.subscriber}"),
        ShownColumn(None, "application", lambda one: one.application),
        ShownColumn(None, "subscriber", lambda one: one.subscriber),
        ShownColumn("ADDRESS", "address", lambda one: one.address),
        ShownColumn("STATE", "state", lambda one: one.state),
        ShownColumn("SINCE", "connected_s", lambda one: one.connected_s or None, span),
        ShownColumn("FLOWS", "flows", lambda one: one.flows),
        ShownColumn("CAUSE", "cause", lambda one: one.cause),
    ),
    lambda status: status.subscribers,
)
PUBLISHERS: Final = Listing(
    "publishers",
    PUBLISHER,
    lambda status: [status],
    _publisher_notes,
)


class _Shard(NamedTuple):
    name: str
    status: Status
    flows: list[admin_pb2.FlowStatus]

    @property
    def last(self) -> admin_pb2.FlowStatus:
        """The flow that is furthest behind."""
        return max(self.flows, key=lambda flow: lag_of(self.status, flow).order)


def _shards(status: Status) -> Iterable[_Shard]:
    shards: dict[str, list[admin_pb2.FlowStatus]] = {}
    for flow in status.flows:
        shards.setdefault(flow.flow.partition("/")[2], []).append(flow)
    return (_Shard(name, status, flows) for name, flows in sorted(shards.items()))


def _applications(shard: _Shard) -> str:
    names = ", ".join(sorted(flow.flow.partition("/")[0] for flow in shard.flows))
    return f"{names}; last is {shard.last.flow}"


SHARDS: Final = Listing(
    "shards",
    ShownTable[_Shard](
        ShownColumn("SHARD", "shard", lambda one: one.name),
        ShownColumn("OWNER", None, lambda one: publisher_name(one.status)),
        ShownColumn(
            "FLOWS", "flows", lambda one: sorted(flow.flow for flow in one.flows), lambda flows: str(len(flows))
        ),
        ShownColumn("LAG", None, lambda one: lag_of(one.status, one.last), lag_text),
        ShownColumn(None, "lag_s", lambda one: max(flow.lag_s for flow in one.flows)),
        ShownColumn(
            None,
            "lag_bytes",
            lambda one: max((lag for flow in one.flows if (lag := given(flow, "lag_bytes")) is not None), default=None),
        ),
        ShownColumn("APPLICATIONS", None, _applications),
    ),
    _shards,
)
