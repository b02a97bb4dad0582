"""Flows as rows and as objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from wormhole.model.errors import UsageError
from wormhole.model.visible import few
from wormhole.wire.backfills import backfill_text
from wormhole.wire.conditions import flow_condition, log_condition
from wormhole.wire.lag import Lag, lag_of
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.backfills import backfill_object
from wormholectl.show.lists import Listing, condition_object
from wormholectl.show.places import Status, native_place, place_text, shown_place
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


def lag_text(lag: Lag) -> str:
    """Age / bytes of log / transactions of the shard, each ``-`` where it is not known; ``at least`` before a lower
    bound.
    """
    age = "-" if lag.seconds is None else f"at least {span(lag.seconds)}" if lag.unknown else span(lag.seconds)
    behind = "-" if lag.bytes is None else size(lag.bytes)
    transactions = "-" if lag.transactions is None else f"{lag.transactions:,} tx"
    return f"{age} / {behind} / {transactions}"


def _remarks(status: Status, flow: admin_pb2.FlowStatus) -> str:
    return "; ".join(
        filter(
            None,
            (
                _cause(status, flow),
                backfill_text(flow),
                f"{flow.dead_letters:,} dead letters" if flow.dead_letters else "",
                f"passes over {len(flow.skip)}" if flow.skip else "",
                f"{flow.bad_values:,} sent whose value is not of its declared format" if flow.bad_values else "",
            ),
        )
    )


def _cause(status: Status, flow: admin_pb2.FlowStatus) -> str:
    """With the next step where that is not a command of its own, which `why-lag` shows: one line for many flows."""
    condition = flow_condition(status, flow)
    if not condition.cause:
        return flow.cause
    return (
        str(condition)
        if condition == log_condition(status)
        else str(replace(problem_of(flow), text=condition.cause, code=condition.code))
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
        notes=lambda status: listing.notes(narrow(status)),
    )


def _flow_rows(status: Status) -> Iterable[Sequence[str]]:
    for flow in status.flows:
        yield (
            flow.flow,
            flow.state,
            flow.subscriber or "-",
            str(flow.epoch),
            shown_place(status, flow.place),
            shown_place(status, flow.marker.order) if flow.HasField("marker") else "",
            lag_text(lag_of(status, flow)),
            f"{size(flow.in_flight)} of {size(flow.in_flight + flow.credit)}",
            f"{flow.caravan}{' (relay)' if flow.reads_relay else ''}" if flow.caravan else "-",
            span(flow.headroom_s) if flow.HasField("headroom_s") else "-",
            f"{flow.updates:,}",
            _remarks(status, flow),
        )


def _headroom_notes(status: Status) -> Iterable[str]:
    """Why HEADROOM is not known, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for flow in status.flows:
        if not flow.HasField("headroom_s") and flow.headroom_unknown:
            reasons.setdefault(flow.headroom_unknown, []).append(flow.flow)
    for reason, names in reasons.items():
        of = "" if len(names) == len(status.flows) else f" of {few(names)}"
        yield f"HEADROOM -{of}: {reason}"


def flow_object(status: Status, flow: admin_pb2.FlowStatus) -> dict[str, Any]:
    """One flow of the publisher that reported ``status``, for programs (docs/cli-schema.json: ``flow``)."""
    report, lag, marked = flow.handler, lag_of(status, flow), flow.HasField("marker")
    return {
        "flow": flow.flow,
        "state": flow.state,
        "subscriber": flow.subscriber or None,
        "epoch": flow.epoch,
        "place": place_text(flow.place),
        "native_place": native_place(status, flow.place),
        "marker": place_text(flow.marker.order) if marked else None,
        "native_marker": native_place(status, flow.marker.order) if marked else None,
        "delivered": flow.marker.delivered,
        "lag_s": flow.lag_s,
        "lag_unknown": lag.unknown or None,
        "lag_bytes": lag.bytes,
        "lag_transactions": lag.transactions,
        "headroom_s": flow.headroom_s if flow.HasField("headroom_s") else None,
        "headroom_unknown": flow.headroom_unknown or None,
        "credit": flow.credit,
        "in_flight": flow.in_flight,
        "updates": flow.updates,
        "bytes": flow.bytes,
        "bad_values": flow.bad_values,
        "caravan": flow.caravan or None,
        "reads_relay": flow.reads_relay,
        "filter": flow.filter,
        "cause": flow.cause,
        "condition": condition_object(flow_condition(status, flow)),
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
        "backfill": backfill_object(flow.backfill) if flow.HasField("backfill") else None,
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
    return (flow_object(status, flow) for flow in status.flows)


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
    _headroom_notes,
    ("UPDATES", "EPOCH", "CREDIT USED", "HEADROOM", "PLACE", "CARAVAN"),
)


def _marker_rows(status: Status) -> Iterable[Sequence[str]]:
    for flow in status.flows:
        yield (
            flow.flow,
            shown_place(status, flow.marker.order) if flow.HasField("marker") else "-",
            flow.marker.delivered or "-",
            lag_text(lag_of(status, flow)),
            span(flow.headroom_s) if flow.HasField("headroom_s") else "-",
            _remarks(status, flow),
        )


def _marker_objects(status: Status) -> Iterable[dict[str, Any]]:
    kept = (
        "flow",
        "marker",
        "native_marker",
        "delivered",
        "lag_s",
        "lag_unknown",
        "lag_bytes",
        "lag_transactions",
        "headroom_s",
        "headroom_unknown",
        "paused",
    )
    for flow in status.flows:
        whole = flow_object(status, flow)
        yield {name: whole[name] for name in kept}


MARKERS: Final = Listing(
    "markers",
    ("FLOW", "MARKER", "DELIVERED", "LAG", "HEADROOM", "CAUSE"),
    _marker_rows,
    _marker_objects,
    _headroom_notes,
)
