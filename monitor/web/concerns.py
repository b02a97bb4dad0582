"""What needs somebody: how much, in words, and whose move it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from monitor.state import HostState, Phase, PublisherState
from wormhole.wire.v1 import admin_pb2

__all__ = ["Concern", "Level", "of_flow", "of_host", "of_publisher"]

_SILENT_S: Final = 10.0
_LAGS_S: Final = 60.0
_MUCH, _MOST = 0.5, 0.8  # of the time that the log is kept
_NO_CREDIT_S: Final = 10.0
_NO_PROGRESS_S: Final = 60.0


class Level(IntEnum):
    """How much it matters; the greater the sooner."""

    NONE = 0
    ATTENTION = 1
    PROBLEM = 2


@dataclass(frozen=True, slots=True)
class Concern:
    """``text``: what is wrong. ``who``: operator, subscriber or database, and ``next``: what they do about it."""

    level: Level
    text: str
    who: str
    next: str


def of_host(state: HostState) -> Iterator[Concern]:
    """What concerns the host as a whole."""
    if state.coordination in {"suspended", "lost"}:
        yield Concern(
            Level.ATTENTION,
            (
                f"ZooKeeper is away (the session is {state.coordination}); the host goes on with the last good "
                "configuration"
            ),
            "operator",
            "bring ZooKeeper back; nothing has to be done here",
        )


def of_publisher(publisher: PublisherState, now: float) -> Iterator[Concern]:
    """What concerns one publisher, the worst first. ``now``: seconds since 1970."""
    match publisher.phase:
        case Phase.GIVEN_UP:
            yield Concern(
                Level.PROBLEM,
                publisher.problem or "it ended too often and is not started again",
                "operator",
                "read its log and mend the cause; a changed configuration or SIGHUP to the monitor tries again",
            )
        case Phase.BACKING_OFF:
            yield Concern(
                Level.ATTENTION,
                publisher.problem or "it ended by itself",
                "nobody yet",
                "it is started again by itself; its log tells why it ended",
            )
        case Phase.STARTING if publisher.problem:
            yield Concern(Level.ATTENTION, publisher.problem, "nobody yet", "it is being started again")
        case _ if publisher.problem:
            yield Concern(Level.ATTENTION, publisher.problem, "operator", "`wormholectl doctor` looks for the cause")
    status = publisher.status
    silent_s = now - max(publisher.answered, publisher.since)
    if publisher.phase is Phase.RUNNING and not publisher.problem and silent_s > _SILENT_S:
        yield Concern(
            Level.ATTENTION,
            "it runs but does not answer; what is shown of it is old",
            "operator",
            "look at the load of the host and at the publisher's log",
        )
    if status is None or publisher.phase is not Phase.RUNNING:
        return
    if status.HasField("stuck_s") and status.stuck_s > 0:
        yield Concern(
            Level.PROBLEM,
            f"the log grows and nothing was read for {_span(status.stuck_s)}",
            "operator",
            "look at the publisher's log; a restart goes on from the markers",
        )
    for problem in status.problems:
        yield Concern(
            Level.PROBLEM if status.end_unknown else Level.ATTENTION,
            problem,
            "operator",
            "`wormholectl doctor` looks for the cause",
        )
    if status.coordination in {"suspended", "lost"}:
        yield Concern(
            Level.ATTENTION,
            f"its session with ZooKeeper is {status.coordination}: what flows goes on, nothing is assigned anew",
            "operator",
            "bring ZooKeeper back",
        )


def of_flow(flow: admin_pb2.FlowStatus) -> Iterator[Concern]:
    """What concerns one flow, the worst first."""
    name = flow.flow
    if flow.state == "needs_replay":
        yield Concern(
            Level.PROBLEM,
            "a replay was given up, and the log no longer holds its datamarker",
            "operator",
            (
                f"`wormholectl replay --resume {flow.replay.replay}`, or go on without: `wormholectl flows accept-loss "
                f"{name}`"
            ),
        )
    elif flow.state == "replaying" and not flow.replay.lease_left_s:
        yield Concern(
            Level.ATTENTION,
            flow.cause,
            "operator",
            "see that the database's log can be reached; it is decided by itself then",
        )
    elif flow.loss_pending:
        yield Concern(
            Level.PROBLEM,
            flow.cause or "the log no longer holds what it needs next",
            "operator",
            f"replay what is missing, or go on without: `wormholectl flows accept-loss {name}`",
        )
    elif flow.halted_at:
        yield Concern(
            Level.PROBLEM,
            flow.cause or f"its handler gave up at update {flow.halted_at}",
            "subscriber",
            f"mend the handler, then `wormholectl flows resume {name}`, or skip that update",
        )
    elif flow.state == "held" and not flow.paused:
        yield Concern(
            Level.PROBLEM, flow.cause or "it is held", "operator", f"`wormholectl why-lag {name}` names the stage"
        )
    behind = _share_of_log(flow)
    if behind > _MUCH:
        yield Concern(
            Level.PROBLEM if behind > _MOST else Level.ATTENTION,
            f"the log drops what it needs next in {_span(flow.headroom_s)}",
            "database",
            "keep more log, or get its subscriber going before",
        )
    if flow.state == "unassigned" and not flow.paused:
        yield Concern(
            Level.ATTENTION, flow.cause or "no subscriber is there", "subscriber", "start one that takes this shard"
        )
    if flow.progress_s > _NO_PROGRESS_S:
        running = f" (update {flow.handler.running_update})" if flow.handler.running_update else ""
        yield Concern(
            Level.ATTENTION,
            f"its handler has finished nothing for {_span(flow.progress_s)}{running}",
            "subscriber",
            "look at what the handler waits for",
        )
    elif flow.credit_waited_s > _NO_CREDIT_S:
        yield Concern(
            Level.ATTENTION,
            f"its subscriber has taken nothing more for {_span(flow.credit_waited_s)}",
            "subscriber",
            "a faster handler, or more subscribers",
        )
    if flow.dead_letters:
        updates = "update is" if flow.dead_letters == 1 else "updates are"
        yield Concern(
            Level.ATTENTION,
            f"{flow.dead_letters:,} {updates} parked",
            "subscriber",
            f"`wormholectl flows dead-letters {name}`: mend the handler, then retry",
        )


def _share_of_log(flow: admin_pb2.FlowStatus) -> float:
    """How much of the time that the log is kept the flow is behind: 1 is where the log begins. Minutes are much for one
    log and nothing for another; what is seconds behind is not in danger in any.
    """
    if not flow.HasField("headroom_s") or not flow.lag_s > _LAGS_S:
        return 0.0
    return flow.lag_s / (flow.lag_s + flow.headroom_s)


def _span(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
