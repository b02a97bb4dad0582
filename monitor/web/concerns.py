"""Finds the problems that the status page shows: how urgent each is, its text, and who has to act. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from monitor.state import HostState, Phase, ProcessState, PublisherState, SinkState
from wormhole.wire.backfills import has_ended, refused_tables
from wormhole.wire.conditions import State, flow_condition, log_condition, other_warnings
from wormhole.wire.problems import standby_of
from wormhole.wire.v1 import admin_pb2

__all__ = ["Concern", "Level", "of_flow", "of_host", "of_process", "of_publisher", "of_sink"]

_SILENT_S: Final = 10.0
_LAGS_S: Final = 60.0
_MUCH, _MOST = 0.5, 0.8  # fractions of the time for which the log is kept
_NO_CREDIT_S: Final = 10.0
_NO_PROGRESS_S: Final = 60.0
_OF_SUBSCRIBERS: Final = {State.HANDLER_FAILED, State.NO_SUBSCRIBER, State.SUBSCRIBER_AWAY}


class Level(IntEnum):
    """How urgent a concern is. A greater level is more urgent."""

    NONE = 0
    ATTENTION = 1
    PROBLEM = 2


@dataclass(frozen=True, slots=True)
class Concern:
    """A problem to show. ``text``: the problem; ``who``: the side that has to act (operator, subscriber or database);
    ``next``: the next step; ``code``: the code of the problem, or empty.

    ``shared``: a text that is equal for all concerns with the same cause; empty: ``text`` is used.
    """

    level: Level
    text: str
    who: str
    next: str
    code: str = ""
    shared: str = ""


def of_host(state: HostState) -> Iterator[Concern]:
    """Concerns of the host as a whole."""
    if state.coordination in {"suspended", "lost"}:
        yield Concern(
            Level.ATTENTION,
            f"ZooKeeper does not answer (the session is {state.coordination}); the host continues with the last good "
            "configuration",
            "operator",
            "restore ZooKeeper; nothing has to be done here",
            code="coordination-lost",
        )


def of_process(process: ProcessState) -> Iterator[Concern]:
    """Concerns of the life of a publisher or a sink."""
    match process.phase:
        case Phase.GIVEN_UP:
            yield Concern(
                Level.PROBLEM,
                process.problem or "it ended too often and is not restarted",
                "operator",
                "read its log and correct the cause; then change the configuration or send the monitor SIGHUP",
            )
        case Phase.BACKING_OFF:
            yield Concern(
                Level.ATTENTION,
                process.problem or "it ended by itself",
                "no action yet",
                "the monitor restarts it; its log contains why it ended",
            )
        case Phase.STARTING if process.problem:
            yield Concern(Level.ATTENTION, process.problem, "no action yet", "the monitor restarts it")
        case _ if process.problem:
            yield Concern(Level.ATTENTION, process.problem, "operator", "`wormholectl doctor` examines the cause")


def of_sink(sink: SinkState) -> Iterator[Concern]:
    """Concerns of one sink."""
    yield from of_process(sink)
    if sink.store:
        worst, _, _ = sink.store.partition(",")
        yield Concern(
            Level.PROBLEM,
            f"its store cannot be used as it is: {sink.store}",
            "operator",
            f"`wormholectl sink check {sink.key.name}` reports what to change",
            code=worst,
        )
    if sink.unverified:
        yield Concern(
            Level.ATTENTION,
            f"rows of {sink.unverified} tables may lack values (each shard counted): they are unverified",
            "operator",
            f"`wormholectl backfill start {sink.application}` sends the rows again",
            code="rows-not-logged",
        )


def of_publisher(publisher: PublisherState, now: float) -> Iterator[Concern]:
    """Concerns of one publisher, the worst first. ``now``: seconds since 1970."""
    yield from of_process(publisher)
    status = publisher.status
    if publisher.phase is Phase.RUNNING and not publisher.problem and publisher.silent_s(now) > _SILENT_S:
        yield Concern(
            Level.ATTENTION,
            "it runs but does not answer; its data here is old",
            "operator",
            "check the load of the host and the publisher's log",
            code="publisher-silent",
        )
    if status is None or publisher.phase is not Phase.RUNNING:
        return
    condition = log_condition(status)
    if condition.cause and condition.state not in {State.NO_SHARD, State.STANDS_BY, State.STARTING}:
        # A standby without a next step is about to take over.
        passes = condition.state is State.UNOWNED and not standby_of(status).hint
        yield Concern(
            Level.PROBLEM if condition.fault and not passes else Level.ATTENTION,
            condition.cause,
            "no action yet" if passes else "operator",
            condition.next_step,
            condition.code,
        )
    elif condition.state is State.STANDS_BY and condition.next_step:
        yield Concern(Level.ATTENTION, condition.cause, "operator", condition.next_step, condition.code)
    for problem in other_warnings(status, condition):
        yield Concern(
            Level.ATTENTION,
            problem.text,
            "operator",
            problem.hint or "`wormholectl doctor` examines the cause",
            problem.code,
        )


def of_flow(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Iterator[Concern]:
    """Concerns of one flow of ``status``, the worst first. Concerns of its publisher are not repeated."""
    name = flow.flow
    condition = flow_condition(status, flow)
    if condition.state is State.REPLAYING and not flow.replay.lease_left_s:
        step = "make the database's log reachable; the publisher then decides by itself"
        yield Concern(Level.ATTENTION, flow.cause, "operator", step)
    own = condition != log_condition(status) and condition.state not in {State.PAUSED, State.REPLAYING}
    who = "subscriber" if condition.state in _OF_SUBSCRIBERS else "operator"
    if own and condition.fault:
        yield Concern(
            Level.PROBLEM, condition.cause, who, condition.next_step, condition.code, " ".join(condition.one_cause)
        )
    behind = _share_of_log(flow)
    if behind > _MUCH:
        yield Concern(
            Level.PROBLEM if behind > _MOST else Level.ATTENTION,
            f"in {_span(flow.headroom_s)} the log no longer holds what it needs next",
            "database",
            "keep more log, or make its subscriber catch up before",
            code="log-kept-short",
        )
    if own and condition.cause and not condition.fault:
        yield Concern(Level.ATTENTION, condition.cause, who, condition.next_step, condition.code)
    if flow.progress_s > _NO_PROGRESS_S:
        running = f" (update {flow.handler.running_update})" if flow.handler.running_update else ""
        yield Concern(
            Level.ATTENTION,
            f"its handler has finished nothing for {_span(flow.progress_s)}{running}",
            "subscriber",
            "find what the handler waits for",
        )
    elif flow.credit_waited_s > _NO_CREDIT_S:
        yield Concern(
            Level.ATTENTION,
            f"its subscriber has granted no credit for {_span(flow.credit_waited_s)}",
            "subscriber",
            "make the handler faster, or run more subscribers",
        )
    for table in [] if has_ended(flow.backfill) else refused_tables(flow.backfill):
        yield Concern(
            Level.ATTENTION,
            f"the existing rows of {table.table} cannot be sent: {table.refused.text}",
            "operator",
            table.refused.hint or f"`wormholectl backfill show {name.partition('/')[0]}` shows the tables",
            table.refused.code,
        )
    if flow.dead_letters:
        updates = "update is" if flow.dead_letters == 1 else "updates are"
        yield Concern(
            Level.ATTENTION,
            f"{flow.dead_letters:,} {updates} parked",
            "subscriber",
            f"correct the handler, then `wormholectl flows dead-letters retry {name}`",
            code="handler-failed",
        )


def _share_of_log(flow: admin_pb2.FlowStatus) -> float:
    """The flow's lag as a fraction of the time for which the log is kept. At 1 the flow is at the beginning of the log.
    A lag of a few seconds counts as 0.
    """
    if not flow.HasField("headroom_s") or not flow.lag_s > _LAGS_S:
        return 0.0
    return flow.lag_s / (flow.lag_s + flow.headroom_s)


def _span(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
