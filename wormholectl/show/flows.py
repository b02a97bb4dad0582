"""Flows as rows and as objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from wormhole.model.errors import UsageError
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.lists import Listing, Status, place_text
from wormholectl.show.printer import size, span

__all__ = ["FLOWS", "MARKERS", "STATES", "check_states", "flow_object", "flows_where", "lag_text", "one_flow"]

STATES: Final = (
    "unassigned",
    "paused",
    "opening",
    "live",
    "catching_up",
    "held",
    "releasing",
    "replaying",
    "needs_replay",
)


def _marker(flow: admin_pb2.FlowStatus) -> str:
    return place_text(flow.marker.order) if flow.HasField("marker") else ""


def lag_text(flow: admin_pb2.FlowStatus) -> str:
    """How far a flow is behind: age / bytes of log / transactions of its shard."""
    behind = size(flow.lag_bytes) if flow.HasField("lag_bytes") else "-"
    transactions = f"{flow.lag_transactions:,} tx" if flow.HasField("lag_transactions") else "-"
    return f"{span(flow.lag_s)} / {behind} / {transactions}"


def _remarks(flow: admin_pb2.FlowStatus) -> str:
    return "; ".join(
        filter(
            None,
            (
                flow.cause,
                f"halted at {flow.halted_at}" if flow.halted_at and flow.halted_at not in flow.cause else "",
                f"{flow.dead_letters:,} dead letters" if flow.dead_letters else "",
                f"passes over {len(flow.skip)}" if flow.skip else "",
                f"{flow.bad_values:,} sent whose value is not of its declared format" if flow.bad_values else "",
            ),
        )
    )


def check_states(states: Iterable[str]) -> None:
    """Raises :class:`~wormhole.model.errors.UsageError` for a state that no flow can be in."""
    for state in states:
        if state not in STATES:
            raise UsageError(f"--state {state}: there is no such state", hint=f"one of {', '.join(STATES)}")


def flows_where(listing: Listing, application: str, states: Collection[str]) -> Listing:
    """``listing`` of the flows of one application (empty: of all) that are in one of ``states`` (none: in any)."""
    return _of_some(
        listing,
        lambda flow: (
            (not application or flow.flow.partition("/")[0] == application) and (not states or flow.state in states)
        ),
    )


def one_flow(listing: Listing, name: str) -> Listing:
    """``listing`` of one flow."""
    return _of_some(listing, lambda flow: flow.flow == name)


def _of_some(listing: Listing, wanted: Callable[[admin_pb2.FlowStatus], bool]) -> Listing:
    def narrow(status: Status) -> Status:
        found = Status()
        found.CopyFrom(status)
        del found.flows[:]
        found.flows.extend(filter(wanted, status.flows))
        return found

    return replace(
        listing,
        rows=lambda status: listing.rows(narrow(status)),
        objects=lambda status: listing.objects(narrow(status)),
    )


def _flow_rows(status: Status) -> Iterable[Sequence[str]]:
    for flow in status.flows:
        yield (
            flow.flow,
            flow.state,
            flow.subscriber or "-",
            str(flow.epoch),
            place_text(flow.place),
            _marker(flow),
            lag_text(flow),
            f"{size(flow.in_flight)} of {size(flow.in_flight + flow.credit)}",
            str(flow.caravan) if flow.caravan else "-",
            span(flow.headroom_s) if flow.HasField("headroom_s") else "-",
            f"{flow.updates:,}",
            _remarks(flow),
        )


def flow_object(flow: admin_pb2.FlowStatus) -> dict[str, Any]:
    """One flow for programs (docs/cli-schema.json: ``flow``)."""
    report = flow.handler
    return {
        "flow": flow.flow,
        "state": flow.state,
        "subscriber": flow.subscriber or None,
        "epoch": flow.epoch,
        "place": place_text(flow.place),
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
        "paused": flow.paused or None,
        "skip": list(flow.skip),
        "dead_letters": flow.dead_letters,
        "halted_at": flow.halted_at or None,
        "loss_pending": flow.loss_pending,
        "credit_waited_s": flow.credit_waited_s,
        "progress_s": flow.progress_s,
        "handler": {
            "updates": report.updates,
            "busy_s": report.busy_s,
            "failures": report.failures,
            "slowest_table": report.slowest_table or None,
            "slowest_s": report.slowest_s,
            "queued_bytes": report.queued_bytes,
            "running_update": report.running_update or None,
            "running_s": report.running_s,
            "skipped": report.skipped,
            "parked": report.parked,
        }
        if flow.HasField("handler")
        else None,
        "replay": _replay_object(flow.replay) if flow.HasField("replay") else None,
    }


def _replay_object(replay: admin_pb2.ReplayStatus) -> dict[str, Any]:
    return {
        "replay": replay.replay,
        "who": replay.who,
        "state": replay.state,
        "mode": "latest" if replay.mode == admin_pb2.LATEST else "log",
        "where": replay.where or None,
        "begin": place_text(replay.begin.order) if replay.HasField("begin") else None,
        "until": place_text(replay.until.order) if replay.HasField("until") else None,
        "started_s": replay.started_s,
        "lease_left_s": replay.lease_left_s,
        "updates": replay.updates,
        "bytes": replay.bytes,
        "attempts": replay.attempts,
    }


def _flow_objects(status: Status) -> Iterable[dict[str, Any]]:
    return map(flow_object, status.flows)


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


def _marker_rows(status: Status) -> Iterable[Sequence[str]]:
    for flow in status.flows:
        headroom = span(flow.headroom_s) if flow.HasField("headroom_s") else "-"
        yield (flow.flow, _marker(flow) or "-", flow.marker.delivered or "-", lag_text(flow), headroom, _remarks(flow))


def _marker_objects(status: Status) -> Iterable[dict[str, Any]]:
    kept = ("flow", "marker", "delivered", "lag_s", "lag_bytes", "lag_transactions", "headroom_s", "paused")
    for flow in status.flows:
        told = flow_object(flow)
        yield {name: told[name] for name in kept}


MARKERS: Final = Listing(
    "markers", ("FLOW", "MARKER", "DELIVERED", "LAG", "HEADROOM", "CAUSE"), _marker_rows, _marker_objects
)
