"""Derives the condition of a publisher and its flows from its report: one state, its cause and the next step.

Every output shows these words: ``up``, ``lag``, ``why-lag``, ``flows``, ``doctor``, ``publishers``, the status page and
the health probes. If one fault causes several others, only the first is named: a log that cannot be read is also the
cause of each of its flows. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.wire.problems import is_unowned, problem_from, problem_of, standby_of, warnings_of
from wormhole.wire.v1 import admin_pb2

__all__ = [
    "STUCK_S",
    "Condition",
    "State",
    "flow_condition",
    "log_condition",
    "other_warnings",
    "step_of_all",
    "why_no_flows",
]

STUCK_S: Final = 15.0
"""After this many seconds without reading a growing log there is a fault. Opening a log again takes a second or two."""


class State(StrEnum):
    """A publisher has a state from ``ok`` to ``no_shard``. A flow has any state but ``no_shard``."""

    OK = "ok"
    STARTING = "starting"
    """Neither the log's end nor a fault is known yet."""
    LOG_UNREADABLE = "log_unreadable"
    """The datastore does not answer, refuses the account, or may not be read."""
    LOG_UNREAD = "log_unread"
    """The log grows, and nothing of it is read."""
    UNOWNED = "unowned"
    """No publisher owns the log, and this one has not taken it over."""
    STANDS_BY = "stands_by"
    """Another publisher owns the log."""
    NO_COORDINATOR = "no_coordinator"
    NO_SHARD = "no_shard"
    """There is no flow: no application receives from the log, or the log had no update of its tables yet."""
    PAUSED = "paused"
    REPLAYING = "replaying"
    NEEDS_REPLAY = "needs_replay"
    LOG_LOST = "log_lost"
    """The log no longer holds what the flow needs next."""
    HANDLER_FAILED = "handler_failed"
    HELD = "held"
    NO_SUBSCRIBER = "no_subscriber"
    SUBSCRIBER_AWAY = "subscriber_away"


_FAULTS: Final = frozenset(
    {State.LOG_UNREADABLE, State.LOG_UNREAD, State.UNOWNED, State.NEEDS_REPLAY}
    | {State.LOG_LOST, State.HANDLER_FAILED, State.HELD}
)
_EXPLAINS_NO_FLOWS: Final = frozenset(
    {State.STARTING, State.LOG_UNREADABLE, State.UNOWNED, State.STANDS_BY, State.NO_COORDINATOR}
)


@dataclass(frozen=True, slots=True)
class Condition:
    """``state``, ``cause`` (empty: there is no fault) and the next step (empty: there is none).

    ``code``: the code of the cause (:mod:`wormhole.problems`). ``shared``: the part of the cause's text that is equal
    for all flows with this cause; empty: the whole text.
    """

    state: State
    cause: str = ""
    next_step: str = ""
    code: str = ""
    shared: str = ""

    @property
    def one_cause(self) -> tuple[State, str]:
        """A key that is equal for flows with one cause, although their texts and steps may name different updates."""
        return self.state, self.shared or self.cause

    @property
    def fault(self) -> bool:
        """Whether nothing is delivered until it is corrected. It is false for a condition that passes or was
        requested.
        """
        return self.state in _FAULTS

    @property
    def problem(self) -> Problem:
        """The cause, the next step and the code."""
        return Problem(self.cause, self.next_step, self.code)

    def __str__(self) -> str:
        """The condition on one line, as in a log."""
        return str(self.problem)


def log_condition(status: admin_pb2.PublisherStatus) -> Condition:
    """The state of a publisher that answers, and of its log."""
    standby = standby_of(status)
    if is_unowned(status):
        step = standby.hint or "`wormholectl publishers` shows which publishers stand by"
        cause = f"no publisher owns the log, and it has not taken over: {standby.text}"
        return Condition(State.UNOWNED, cause, step, code=standby.code or "log-unowned")
    if status.owner:
        cause = standby.text or f"{status.owner} owns the log"
        return Condition(State.STANDS_BY, cause, standby.hint, code=standby.code or "stands-by")
    if unreadable := _unreadable(status):
        step = unreadable.hint or "see the publisher's log; `wormholectl doctor URL` examines the datastore"
        return Condition(State.LOG_UNREADABLE, unreadable.text, step, code=unreadable.code or "source-unavailable")
    if status.HasField("stuck_s") and status.stuck_s >= STUCK_S:
        cause = f"the log grows and nothing of it was read for {status.stuck_s:.0f} s"
        step = "see that its disk or server answers (`wormholectl doctor URL`), then restart the publisher"
        return Condition(State.LOG_UNREAD, cause, step, code="log-stuck")
    if status.coordination in {"suspended", "lost"}:
        cause = f"ZooKeeper does not answer (the session is {status.coordination}): flows go on, nothing is assigned"
        step = "bring ZooKeeper back; nothing has to be done here"
        return Condition(State.NO_COORDINATOR, cause, step, code="coordination-lost")
    if not status.flows:
        if not status.HasField("log_end"):
            return Condition(
                State.STARTING, "it is starting: its log was not measured yet", "wait a moment", code="in-progress"
            )
        step = "`wormholectl config show` lists the applications; one of new tables has a shard with their first change"
        cause = "no flow is there: no application has a shard of this log yet"
        return Condition(State.NO_SHARD, cause, step, code="no-shard")
    return Condition(State.OK)


def _unreadable(status: admin_pb2.PublisherStatus) -> Problem:
    """The reason why the log cannot be read. A publisher of an earlier release reports it among its warnings."""
    if status.HasField("unreadable"):
        return problem_from(status.unreadable)
    if not status.end_unknown:
        return NO_PROBLEM
    same = (one for one in warnings_of(status) if str(one) == status.end_unknown)
    return next(same, Problem.parsed(status.end_unknown))


def flow_condition(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Condition:
    """The state of a flow that ``status`` contains."""
    own = _of_operators(flow) or _of_flow(flow)
    if own is not None:
        return own
    log = log_condition(status)
    if log.fault or log.state is State.STANDS_BY:
        return log
    if flow.state == "held":
        cause = problem_of(flow)
        resume = f"wormholectl flows resume {flow.flow}"
        step = f"{cause.hint}; if it is still held then: {resume}" if cause.hint else f"correct that, then {resume}"
        text = cause.text or "it is held, and its publisher does not say why"
        return Condition(State.HELD, text, step, code=cause.code or "flow-held")
    return _of_subscriber(status, flow, log)


def _of_operators(flow: admin_pb2.FlowStatus) -> Condition | None:
    """The condition that an operator requested."""
    name, replay = flow.flow, flow.replay
    if flow.paused:
        return Condition(
            State.PAUSED, f"it is paused: {flow.paused}", f"wormholectl flows resume {name}", code="flow-paused"
        )
    if flow.state == "needs_replay" or replay.state == "needs_replay":
        step = f"wormholectl replay --resume {replay.replay}, or wormholectl flows accept-loss {name}"
        cause = "its replay was given up, and the log no longer holds its datamarker"
        return Condition(State.NEEDS_REPLAY, cause, step, code="replay-needed")
    if flow.state == "replaying" or flow.HasField("replay"):
        step = f"wait for it, or wormholectl replay --cancel {replay.replay}"
        return Condition(State.REPLAYING, f"replay {replay.replay} by {replay.who} has it", step, "flow-replaying")
    return None


def _of_flow(flow: admin_pb2.FlowStatus) -> Condition | None:
    """The condition that only a decision about this flow ends."""
    name, cause = flow.flow, problem_of(flow)
    if flow.loss_pending:
        step = (
            f"wormholectl repair {name} sends the rows that it lacks{f' ({flow.repair})' if flow.repair else ''}; "
            f"an archive that holds the range can replay it; wormholectl flows accept-loss {name} goes on without it"
        )
        text = cause.text or "the log no longer holds what it needs next"
        return Condition(State.LOG_LOST, text, step, code=cause.code or "data-lost")
    if flow.halted_at:
        text = cause.text
        if flow.halted_at not in text:
            text = f"its handler gave up at update {flow.halted_at}{f': {text}' if text else ''}"
        step = (
            f"correct the handler, then wormholectl flows resume {name}; "
            f"or wormholectl flows skip {name} --update {flow.halted_at}"
        )
        # The text names the shard, the update and perhaps values, so it differs between flows of the same handler.
        return Condition(State.HANDLER_FAILED, text, step, code="handler-failed", shared=name.partition("/")[0])
    return None


def _of_subscriber(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus, log: Condition) -> Condition:
    application = flow.flow.partition("/")[0]
    mine = [one for one in status.subscribers if one.application == application]
    if flow.state == "unassigned" or (flow.state == "opening" and not flow.subscriber):
        if log.state is State.NO_COORDINATOR:
            return log
        cause = problem_of(flow)
        away = next((problem_of(one) for one in mine if one.state != "connected" and problem_of(one)), NO_PROBLEM)
        step = cause.hint or away.hint or f"start a subscriber of {application}"
        if mine and not (cause.hint or away.hint):
            step = "wormholectl subscribers shows how they are reached"
        found = cause or away
        text = found.text or "no subscriber is connected"
        return Condition(State.NO_SUBSCRIBER, text, step, code=found.code or "no-subscriber")
    for one in mine:
        if one.subscriber == flow.subscriber and one.state != "connected":
            cause = problem_of(one)
            text = f"its subscriber {one.subscriber} at {one.address} is {one.state}"
            step = cause.hint or f"check that {one.subscriber} runs and that {one.address} can be reached from here"
            text = f"{text}: {cause.text}" if cause else text
            return Condition(State.SUBSCRIBER_AWAY, text, step, code=cause.code or "subscriber-unreachable")
    return log if log.state is State.NO_COORDINATOR else Condition(State.OK)


def why_no_flows(statuses: Iterable[admin_pb2.PublisherStatus]) -> tuple[str, Condition] | None:
    """The first publisher, ``dataset/copy/log``, whose state explains why a flow or an application is unknown."""
    for status in statuses:
        found = log_condition(status)
        if found.state in _EXPLAINS_NO_FLOWS:
            return f"{status.dataset}/{status.copy}/{status.log}", found
    return None


def step_of_all(steps: Sequence[str]) -> str:
    """The next step for all flows with one cause: the first step, with the number of the others if they differ."""
    others = len(steps) - 1
    return steps[0] if len(set(steps)) == 1 else f"{steps[0]}; likewise for the other {others}"


def other_warnings(status: admin_pb2.PublisherStatus, condition: Condition) -> list[Problem]:
    """The warnings of a publisher with a cause other than its ``condition``, each once."""
    found = dict.fromkeys(warnings_of(status))
    return [one for one in found if not condition.cause or condition.cause not in one.text]
