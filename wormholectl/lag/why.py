"""Diagnoses why a flow is behind. It finds the stage that delays the flow's updates from its publisher's status. Pure.

The stages, in the order in which an update passes them::

    log      reading: the log cannot be read, is missing, or may not be read faster (caps, no caravan free)
    decode   the publisher's processor: it reads as fast as it can, and that is too slow
    filter   reading is ahead, and read updates wait for the flow's filter
    credit   the subscriber processes its credit faster than new credit arrives
    network  no subscriber is connected, or sent updates make no progress
    handler  the application's callback

Other results are ``control`` (an operator or a setting holds the flow) and ``none`` (the flow is not behind). A stage
that waits for a later stage is not the cause, so the stages are examined from the last to the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from wormhole.wire.backfills import has_ended
from wormhole.wire.conditions import State, flow_condition, log_condition
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.show.printer import size, span

__all__ = ["Diagnosis", "LagStage", "diagnose"]

_SLOW_CALLBACK_S: Final = 1.0
_NOTHING_MOVES_S: Final = 5.0
"""Seconds without progress that count as a delay: longer than the interval of the subscriber's reports."""
_AT_ITS_CAP: Final = 0.8


class LagStage(Enum):
    """See the module."""

    NONE = "none"
    CONTROL = "control"
    LOG = "log"
    DECODE = "decode"
    FILTER = "filter"
    CREDIT = "credit"
    NETWORK = "network"
    HANDLER = "handler"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result: the stage that delays the flow, ``what`` happens there, the figures, and the next step (empty if none
    is needed).

    ``code``: the code of the problem that delays the flow; empty for a flow that is only slow. ``slowest_table``: the
    table whose callback recently took longest, ``slowest_s`` seconds; empty if not known.
    """

    stage: LagStage
    what: str
    because: tuple[str, ...] = ()
    next_step: str = ""
    code: str = ""
    slowest_table: str = ""
    slowest_s: float = 0.0


def diagnose(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Diagnosis:
    """The stage that delays ``flow``. ``status``: the status of its publisher."""
    found = _condition(status, flow) or _not_behind(flow) or _delivery(flow)
    found = found or _filter(status, flow) or _reading(status, flow)
    because = (*found.because, *_relay(status, flow, found))
    report = flow.handler
    if not report.slowest_table:
        return replace(found, because=because)
    return replace(found, because=because, slowest_table=report.slowest_table, slowest_s=report.slowest_s)


def _relay(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus, found: Diagnosis) -> tuple[str, ...]:
    """Facts about the relay: whether the flow reads it, and the relay's problem. Empty for a flow without lag."""
    relay = status.relay
    if found.stage is LagStage.NONE or not status.HasField("relay"):
        return ()
    facts = ["it reads from the relay, not from the datastore"] if flow.reads_relay else []
    if relay.HasField("problem"):
        kept = ""
        if relay.mode == "hold" and relay.keeps_slot:
            kept = ", and the datastore keeps its log meanwhile"
        elif relay.mode == "hold":
            kept = ", and what the datastore cannot keep within slot_budget is lost soon"
        facts.append(f"the relay does not record{kept}: {relay.problem.text}")
    return tuple(facts)


_STAGES: Final = {
    State.PAUSED: LagStage.CONTROL,
    State.REPLAYING: LagStage.CONTROL,
    State.HELD: LagStage.CONTROL,
    State.STANDS_BY: LagStage.CONTROL,
    State.HANDLER_FAILED: LagStage.HANDLER,
    State.NO_SUBSCRIBER: LagStage.NETWORK,
    State.SUBSCRIBER_AWAY: LagStage.NETWORK,
    State.NO_COORDINATOR: LagStage.NETWORK,
    State.NEEDS_REPLAY: LagStage.LOG,
    State.LOG_LOST: LagStage.LOG,
    State.LOG_UNREADABLE: LagStage.LOG,
    State.LOG_UNREAD: LagStage.LOG,
    State.UNOWNED: LagStage.LOG,
}


def _condition(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Diagnosis | None:
    """The diagnosis from the flow's condition (:mod:`wormhole.wire.conditions`); ``None`` if it is only behind."""
    found = flow_condition(status, flow)
    if found.state not in _STAGES or (found.state is State.NO_COORDINATOR and flow.subscriber):
        return None
    follows = problem_of(flow).text in found.cause or found == log_condition(status)
    because = [] if follows else list(_cause(flow))
    if found.state is State.REPLAYING:
        left = flow.replay.lease_left_s
        because.insert(0, f"{span(left)} of its lease are left" if left else "its lease has run out")
    return Diagnosis(_STAGES[found.state], found.cause, tuple(because), found.next_step, found.code)


def _not_behind(flow: admin_pb2.FlowStatus) -> Diagnosis | None:
    # Without a commit time at the datamarker the age is unknown and reported as 0. Then the bytes count.
    behind = flow.lag_transactions > 0 if flow.HasField("lag_transactions") else flow.lag_s > 0 or flow.lag_bytes > 0
    # A backfill always has sent rows without an ack. They are not a backlog of the log.
    rows = flow.HasField("backfill") and not has_ended(flow.backfill)
    return None if behind or (flow.in_flight and not rows) else Diagnosis(LagStage.NONE, "it is not behind")


def _delivery(flow: admin_pb2.FlowStatus) -> Diagnosis | None:
    if not flow.in_flight:
        return None
    report, used_up = flow.handler, flow.credit == 0 or flow.credit_waited_s > 0
    sent = f"{size(flow.in_flight)} sent and not processed"
    calls = _calls(report)
    if report.running_update and report.running_s >= _SLOW_CALLBACK_S:
        what = f"its callback works on update {report.running_update} for {span(report.running_s)}"
        return Diagnosis(LagStage.HANDLER, what, (sent, *calls), _HANDLER_STEP)
    if report.queued_bytes * 2 >= flow.in_flight:
        waiting = f"{size(report.queued_bytes)} wait at the subscriber for a callback"
        return Diagnosis(
            LagStage.HANDLER, "its callbacks take longer than updates arrive", (waiting, *calls), _HANDLER_STEP
        )
    if flow.progress_s >= _NOTHING_MOVES_S:
        return Diagnosis(
            LagStage.NETWORK,
            f"nothing was processed for {span(flow.progress_s)}, and the subscriber has no work",
            (sent,),
            f"check the connection to {flow.subscriber}: bandwidth, loss, a firewall that drops",
        )
    if used_up and flow.HasField("handler"):
        waited = f"credit used up for {span(flow.credit_waited_s)}" if flow.credit_waited_s else "credit is used up"
        return Diagnosis(
            LagStage.CREDIT,
            "the subscriber permits too little at one time",
            (waited, sent, *calls),
            "raise the subscriber's `credit`: it should hold what is handled within a few round trips",
        )
    if used_up:
        return Diagnosis(
            LagStage.HANDLER,
            "the subscriber does not process as fast as it is sent to",
            (sent, "it reports nothing of its callbacks"),
            _HANDLER_STEP,
        )
    return None


_HANDLER_STEP: Final = "make the handler faster (batches, no waiting per update), or run more subscribers"


def _filter(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Diagnosis | None:
    caravan = _caravan(status, flow)
    if caravan is None or not caravan.buffered_bytes or _order(flow.place) >= _order(caravan.place):
        return None
    waiting = f"caravan {caravan.number} is ahead of it with {size(caravan.buffered_bytes)} in its change buffer"
    return Diagnosis(
        LagStage.FILTER,
        "what was read waits for its filter",
        (waiting, f"filter: {flow.filter}"),
        "test cheap things first (op, table, key), or choose tables instead of values; wormholectl filters explain",
    )


def _reading(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Diagnosis:
    caravan, limits = _caravan(status, flow), status.limits
    if caravan is None:
        return Diagnosis(
            LagStage.LOG,
            "no caravan reads at its place",
            (*_cause(flow), f"{len(status.caravans)} of {limits.caravans} caravans run"),
            "raise `max` under [datasets.NAME.caravans], or wait until another one is through",
        )
    reads = f"caravan {caravan.number} reads {size(caravan.bytes_per_s)}/s"
    if status.HasField("log_end") and _order(caravan.place) >= _order(status.log_end):
        return Diagnosis(LagStage.NONE, "it is at the end of the log: what is missing is on its way")
    left = (f"{size(flow.lag_bytes)} are left",) if flow.HasField("lag_bytes") else ()
    together = sum(one.bytes_per_s for one in status.caravans)
    for cap, rate, name in (
        (caravan.target_bytes_per_s, caravan.bytes_per_s, "max_read_rate"),
        (limits.total_read_rate, together, "max_total_read_rate"),
    ):
        if cap and rate >= cap * _AT_ITS_CAP:
            allowed = f"at most {size(cap)}/s are allowed now"
            step = f"raise {name} under [datasets.NAME.caravans], if the database can bear it"
            return Diagnosis(LagStage.LOG, "it may not read faster", (reads, allowed, *left), step)
    if not caravan.bytes_per_s:
        where, step = "the log", "look into the publisher's log; wormholectl doctor URL examines the database"
        if flow.reads_relay:
            where, step = "the relay", "look into the publisher's log; wormholectl relay verify reads its files"
        return Diagnosis(LagStage.LOG, f"nothing arrives from {where}", (reads, *left), step)
    grows = (f"the log grows {size(status.log_bytes_per_s)}/s",) if status.HasField("log_bytes_per_s") else ()
    step = (
        "give the publisher a faster or less busy processor, or split the log"
        if status.compiled
        else ("its decoders run interpreted: install a C compiler and build again")
    )
    return Diagnosis(LagStage.DECODE, "it reads as fast as this publisher can", (reads, *grows, *left), step)


def _caravan(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> admin_pb2.CaravanStatus | None:
    return next((one for one in status.caravans if flow.caravan and one.number == flow.caravan), None)


def _order(place: push_pb2.Position) -> tuple[int, int, int]:
    return place.incarnation, place.file, place.offset


def _cause(flow: admin_pb2.FlowStatus) -> tuple[str, ...]:
    return (flow.cause,) if flow.cause else ()


def _calls(report: admin_pb2.HandlerReport) -> tuple[str, ...]:
    found = []
    if report.updates:
        found.append(f"{report.busy_s / report.updates * 1000:.1f} ms per update in callbacks")
    if report.failures:
        found.append(f"{report.failures:,} attempts failed")
    return tuple(found)
