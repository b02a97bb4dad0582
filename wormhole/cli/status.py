"""``wormholectl flows|caravans|subscribers``: what publishers tell, as tables and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from wormhole.cli.admin_client import Answer
from wormhole.cli.guard import UNREACHABLE
from wormhole.cli.output import print_json, print_table, size, span
from wormhole.cli.render import SCHEMA
from wormhole.position import LogPosition
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["CARAVANS", "FLOWS", "SUBSCRIBERS", "Listing", "show"]

Status = admin_pb2.PublisherStatus
_CAUSE_WIDTH: Final = 60
_EVENTS: Final = 10


@dataclass(frozen=True, slots=True)
class Listing:
    """One thing that publishers tell many of: ``name`` in JSON, columns of the table (the last is the cause), and how one becomes a
    row or an object.

    ``notes``: lines below the table.
    """

    name: str
    columns: tuple[str, ...]
    rows: Callable[[Status], Iterable[Sequence[str]]]
    objects: Callable[[Status], Iterable[dict[str, Any]]]
    notes: Callable[[Status], Iterable[str]] = lambda status: ()


def show(listing: Listing, answers: Sequence[Answer], as_json: bool) -> int:
    """Print what the publishers told; what did not answer goes to standard error too. Returns the exit code."""
    silent = [answer for answer in answers if answer.status is None]
    told = [(answer, answer.status) for answer in answers if answer.status is not None]
    if as_json:
        items = [
            {"publisher": _publisher(status), "address": answer.address, **item}
            for answer, status in told
            for item in listing.objects(status)
        ]
        unreachable = [{"address": answer.address, "problem": answer.problem} for answer in silent]
        print_json(
            {
                "schema": SCHEMA,
                "publishers": [_summary(answer, status) for answer, status in told],
                listing.name: items,
                "unreachable": unreachable,
            }
        )
    else:
        several = len(told) > 1
        columns = (*listing.columns, "PUBLISHER") if several else listing.columns
        causes: dict[str, str] = {}
        rows = [
            (*shown, _publisher(status)) if several else shown
            for _, status in told
            for row in listing.rows(status)
            for shown in [(*row[:-1], _short_cause(row[-1], causes))]
        ]
        names = ", ".join(_publisher(status) for _, status in told)
        print_table(columns, rows, f"no {listing.name} at {names}")
        for cause, sign in causes.items():
            print(f"{sign} {cause}")
        for _, status in told:
            for note in listing.notes(status):
                print(f"{_publisher(status)}: {note}" if several else note)
    for answer in silent:
        print(f"warning: {answer.problem}", file=sys.stderr)
    return UNREACHABLE if silent else 0


def _short_cause(cause: str, causes: dict[str, str]) -> str:
    """A cause that fits the table's last column; a longer one, which often concerns many rows, stands once below it."""
    if len(cause) <= _CAUSE_WIDTH:
        return cause
    return causes.setdefault(cause, f"[{len(causes) + 1}]")


def _publisher(status: Status) -> str:
    return f"{status.dataset}/{status.copy}/{status.log}"


def _summary(answer: Answer, status: Status) -> dict[str, Any]:
    return {
        "publisher": _publisher(status),
        "address": answer.address,
        "version": status.version,
        "compiled": list(status.compiled),
        "uptime_s": status.uptime_s,
        "coordination": status.coordination,
        "log_end": _place(status.log_end) if status.HasField("log_end") else None,
        "log_bytes_per_s": status.log_bytes_per_s if status.HasField("log_bytes_per_s") else None,
        "limits": {
            "caravans": status.limits.caravans,
            "read_rate": status.limits.read_rate or None,
            "total_read_rate": status.limits.total_read_rate or None,
            "buffer_bytes": status.limits.buffer_bytes,
            "buffered_bytes": status.limits.buffered_bytes,
        },
    }


def _place(message: push_pb2.Position) -> str:
    return str(LogPosition(message.incarnation, message.file, message.offset))


def _marker(flow: admin_pb2.FlowStatus) -> str:
    return _place(flow.marker.order) if flow.HasField("marker") else ""


def _lag(flow: admin_pb2.FlowStatus) -> str:
    behind = size(flow.lag_bytes) if flow.HasField("lag_bytes") else "-"
    transactions = f"{flow.lag_transactions:,} tx" if flow.HasField("lag_transactions") else "-"
    return f"{span(flow.lag_s)} / {behind} / {transactions}"


def _remarks(flow: admin_pb2.FlowStatus) -> str:
    bad = f"{flow.bad_values:,} sent whose value is not of its declared format" if flow.bad_values else ""
    return "; ".join(filter(None, (flow.cause, bad)))


def _flow_rows(status: Status) -> Iterable[Sequence[str]]:
    for flow in status.flows:
        yield (
            flow.flow,
            flow.state,
            flow.subscriber or "-",
            str(flow.epoch),
            _place(flow.place),
            _marker(flow),
            _lag(flow),
            f"{size(flow.in_flight)} of {size(flow.in_flight + flow.credit)}",
            str(flow.caravan) if flow.caravan else "-",
            span(flow.headroom_s) if flow.HasField("headroom_s") else "-",
            f"{flow.updates:,}",
            _remarks(flow),
        )


def _flow_objects(status: Status) -> Iterable[dict[str, Any]]:
    for flow in status.flows:
        yield {
            "flow": flow.flow,
            "state": flow.state,
            "subscriber": flow.subscriber or None,
            "epoch": flow.epoch,
            "place": _place(flow.place),
            "marker": _marker(flow) or None,
            "delivered": flow.marker.delivered,
            "lag_s": flow.lag_s,
            "lag_bytes": flow.lag_bytes if flow.HasField("lag_bytes") else None,
            "lag_transactions": flow.lag_transactions if flow.HasField("lag_transactions") else None,
            "headroom_s": flow.headroom_s if flow.HasField("headroom_s") else None,
            "credit": flow.credit,
            "in_flight": flow.in_flight,
            "updates": flow.updates,
            "bytes": flow.bytes,
            "bad_values": flow.bad_values,
            "caravan": flow.caravan or None,
            "filter": flow.filter,
            "cause": flow.cause,
        }


def _rate(bytes_per_s: float) -> str:
    return f"{size(bytes_per_s)}/s" if bytes_per_s else "-"


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _caravan_notes(status: Status) -> Iterable[str]:
    limits = status.limits
    yield (
        f"at most {limits.caravans} caravans, each {_rate(limits.read_rate)}, together {_rate(limits.total_read_rate)}; change buffers "
        f"{size(limits.buffered_bytes)} of {size(limits.buffer_bytes)}"
    )
    for event in status.events[-_EVENTS:]:
        yield f"{_time(event.at_s).astimezone():%H:%M:%S}  caravan {event.caravan}: {event.what}"


def _caravan_rows(status: Status) -> Iterable[Sequence[str]]:
    for caravan in status.caravans:
        yield (
            f"{caravan.number}{' (lead)' if caravan.lead else ''}",
            _place(caravan.place),
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
            "place": _place(caravan.place),
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


FLOWS: Final = Listing(
    "flows",
    (
        "FLOW",
        "STATE",
        "SUBSCRIBER",
        "EPOCH",
        "PLACE",
        "MARKER",
        "LAG",
        "CREDIT USED",
        "CARAVAN",
        "HEADROOM",
        "UPDATES",
        "CAUSE",
    ),
    _flow_rows,
    _flow_objects,
)
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
