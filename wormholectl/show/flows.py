"""Declares the columns of tables of flows, and selects flows for a list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from wormhole.model.errors import UsageError
from wormhole.model.visible import few
from wormhole.wire.backfills import backfill_text
from wormhole.wire.conditions import flow_condition, log_condition
from wormhole.wire.lag import Lag, lag_of
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.show.backfills import BACKFILL
from wormholectl.show.columns import FIGURE, ShownColumn, ShownTable, given
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


class ReportedFlow(NamedTuple):
    """A flow, and the status of its publisher."""

    status: Status
    flow: admin_pb2.FlowStatus

    @property
    def lag(self) -> Lag:
        """How far the flow is behind."""
        return lag_of(self.status, self.flow)

    @property
    def marker(self) -> push_pb2.Position | None:
        """The place of the flow's datamarker."""
        return self.flow.marker.order if self.flow.HasField("marker") else None


FlowListing: TypeAlias = Listing[ReportedFlow]


def lag_text(lag: Lag) -> str:
    """A lag as text: age / bytes of log / transactions of the shard. An unknown value is ``-``. A lower bound begins
    with ``at least``.
    """
    age = "-" if lag.seconds is None else f"at least {span(lag.seconds)}" if lag.unknown else span(lag.seconds)
    behind = "-" if lag.bytes is None else size(lag.bytes)
    transactions = "-" if lag.transactions is None else f"{lag.transactions:,} tx"
    return f"{age} / {behind} / {transactions}"


def _remarks(one: ReportedFlow) -> str:
    flow = one.flow
    return "; ".join(
        filter(
            None,
            (
                _cause(one.status, flow),
                backfill_text(flow),
                f"{flow.dead_letters:,} dead letters" if flow.dead_letters else "",
                f"passes over {len(flow.skip)}" if flow.skip else "",
                f"{flow.bad_values:,} sent whose value is not of its declared format" if flow.bad_values else "",
            ),
        )
    )


def _cause(status: Status, flow: admin_pb2.FlowStatus) -> str:
    """The cause of a flow's state, with the next step if it is the same for many flows. `why-lag` shows steps that are
    commands for one flow."""
    condition = flow_condition(status, flow)
    if not condition.cause:
        return flow.cause
    return (
        str(condition)
        if condition == log_condition(status)
        else str(replace(problem_of(flow), text=condition.cause, code=condition.code))
    )


def check_states(states: Iterable[str]) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` for an unknown state."""
    for state in states:
        if state not in STATES:
            raise UsageError(f"--state {state}: there is no such state", hint=f"one of {', '.join(STATES)}")


def flows_where(listing: FlowListing, application: str, states: Collection[str]) -> FlowListing:
    """``listing`` with only the flows of ``application`` (empty: all) in one of ``states`` (empty: any state)."""
    return _of_some(
        listing,
        lambda flow: (
            (not application or flow.flow.partition("/")[0] == application) and (not states or flow.state in states)
        ),
    )


def one_flow(listing: FlowListing, name: str) -> FlowListing:
    """``listing`` of one flow."""
    return _of_some(listing, lambda flow: flow.flow == name)


def _of_some(listing: FlowListing, wanted: Callable[[admin_pb2.FlowStatus], bool]) -> FlowListing:
    def narrow(status: Status) -> Status:
        found = Status()
        found.CopyFrom(status)
        del found.flows[:]
        found.flows.extend(filter(wanted, status.flows))
        return found

    return replace(
        listing,
        items=lambda status: listing.items(narrow(status)),
        notes=lambda status: listing.notes(narrow(status)),
    )


def _headroom_notes(status: Status) -> Iterable[str]:
    """The reasons why HEADROOM is not known, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for flow in status.flows:
        if not flow.HasField("headroom_s") and flow.headroom_unknown:
            reasons.setdefault(flow.headroom_unknown, []).append(flow.flow)
    for reason, names in reasons.items():
        of = "" if len(names) == len(status.flows) else f" of {few(names)}"
        yield f"HEADROOM -{of}: {reason}"


def _handler(flow: admin_pb2.FlowStatus) -> dict[str, Any]:
    report = flow.handler
    return {
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


def _replay(flow: admin_pb2.FlowStatus) -> dict[str, Any]:
    replay = flow.replay
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


def _credit_used(one: ReportedFlow) -> str:
    return f"{size(one.flow.in_flight)} of {size(one.flow.in_flight + one.flow.credit)}"


def _caravan(one: ReportedFlow) -> str | None:
    return f"{one.flow.caravan}{' (relay)' if one.flow.reads_relay else ''}" if one.flow.caravan else None


def _shown_marker(one: ReportedFlow) -> str | None:
    return None if one.marker is None else shown_place(one.status, one.marker)


_COLUMNS: Final[tuple[ShownColumn[ReportedFlow], ...]] = (
    ShownColumn("FLOW", "flow", lambda one: one.flow.flow),
    ShownColumn("STATE", "state", lambda one: one.flow.state),
    ShownColumn("SUBSCRIBER", "subscriber", lambda one: one.flow.subscriber or None),
    ShownColumn("EPOCH", "epoch", lambda one: one.flow.epoch),
    ShownColumn("PLACE", None, lambda one: shown_place(one.status, one.flow.place)),
    ShownColumn(None, "place", lambda one: place_text(one.flow.place)),
    ShownColumn(None, "native_place", lambda one: native_place(one.status, one.flow.place)),
    ShownColumn("MARKER", None, _shown_marker),
    ShownColumn(None, "marker", lambda one: None if one.marker is None else place_text(one.marker)),
    ShownColumn(
        None, "native_marker", lambda one: None if one.marker is None else native_place(one.status, one.marker)
    ),
    ShownColumn("DELIVERED", "delivered", lambda one: one.flow.marker.delivered, lambda delivered: delivered or "-"),
    ShownColumn("LAG", None, lambda one: one.lag, lag_text),
    ShownColumn(None, "lag_s", lambda one: one.flow.lag_s),
    ShownColumn(None, "lag_unknown", lambda one: one.lag.unknown or None),
    ShownColumn(None, "lag_bytes", lambda one: one.lag.bytes),
    ShownColumn(None, "lag_transactions", lambda one: one.lag.transactions),
    ShownColumn("HEADROOM", "headroom_s", lambda one: given(one.flow, "headroom_s"), span),
    ShownColumn(None, "headroom_unknown", lambda one: one.flow.headroom_unknown or None),
    ShownColumn("CREDIT USED", None, _credit_used),
    ShownColumn(None, "credit", lambda one: one.flow.credit),
    ShownColumn(None, "in_flight", lambda one: one.flow.in_flight),
    ShownColumn("UPDATES", "updates", lambda one: one.flow.updates, FIGURE),
    ShownColumn(None, "bytes", lambda one: one.flow.bytes),
    ShownColumn(None, "bad_values", lambda one: one.flow.bad_values),
    ShownColumn("CARAVAN", None, _caravan),
    ShownColumn(None, "caravan", lambda one: one.flow.caravan or None),
    ShownColumn(None, "reads_relay", lambda one: one.flow.reads_relay),
    ShownColumn(None, "filter", lambda one: one.flow.filter),
    ShownColumn("CAUSE", None, _remarks),
    ShownColumn(None, "cause", lambda one: one.flow.cause),
    ShownColumn(None, "condition", lambda one: condition_object(flow_condition(one.status, one.flow))),
    ShownColumn(None, "paused", lambda one: one.flow.paused or None),
    ShownColumn(None, "skip", lambda one: list(one.flow.skip)),
    ShownColumn(None, "dead_letters", lambda one: one.flow.dead_letters),
    ShownColumn(None, "halted_at", lambda one: one.flow.halted_at or None),
    ShownColumn(None, "loss_pending", lambda one: one.flow.loss_pending),
    ShownColumn(None, "credit_waited_s", lambda one: one.flow.credit_waited_s),
    ShownColumn(None, "progress_s", lambda one: one.flow.progress_s),
    ShownColumn(None, "handler", lambda one: _handler(one.flow) if one.flow.HasField("handler") else None),
    ShownColumn(None, "replay", lambda one: _replay(one.flow) if one.flow.HasField("replay") else None),
    ShownColumn(
        None, "backfill", lambda one: BACKFILL.object(one.flow.backfill) if one.flow.HasField("backfill") else None
    ),
)


def _flows(status: Status) -> Iterable[ReportedFlow]:
    return (ReportedFlow(status, flow) for flow in status.flows)


FLOWS: Final = Listing(
    "flows",
    ShownTable(
        *_COLUMNS,
        ShownColumn("MARKER", None, lambda one: _shown_marker(one) or ""),
        titles=(
            *("FLOW", "STATE", "SUBSCRIBER", "EPOCH", "PLACE", "MARKER", "LAG", "CREDIT USED", "CARAVAN", "HEADROOM"),
            *("UPDATES", "CAUSE"),
        ),
    ),
    _flows,
    _headroom_notes,
    ("UPDATES", "EPOCH", "CREDIT USED", "HEADROOM", "PLACE", "CARAVAN"),
)
MARKERS: Final = Listing(
    "markers",
    ShownTable(
        *_COLUMNS,
        titles=("FLOW", "MARKER", "DELIVERED", "LAG", "HEADROOM", "CAUSE"),
        names=(
            *("flow", "marker", "native_marker", "delivered", "lag_s", "lag_unknown", "lag_bytes", "lag_transactions"),
            *("headroom_s", "headroom_unknown", "paused"),
        ),
    ),
    _flows,
    _headroom_notes,
)


def flow_object(status: Status, flow: admin_pb2.FlowStatus) -> dict[str, Any]:
    """One flow of the publisher that reported ``status``, for programs (docs/cli-schema.json: ``flow``)."""
    return FLOWS.table.object(ReportedFlow(status, flow))
