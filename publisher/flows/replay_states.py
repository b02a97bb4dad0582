"""The states of a flow during a mass replay: which request each state permits, and what is stored. Pure.

::

    live -- begin --> held -- open --> replaying -- finish --> live
                        |                 |
                        +-----------------+-- cancel, or the lease runs out --> live, if the log holds the datamarker
                                                                                else needs_replay -- begin, same or new
                                                                                id --> held
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Final

import grpc

from publisher.flows.refused_error import RefusedError
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.marker_store import ReplayControl, ReplayState
from wormhole.push.allowance import Reading, TokenBucket
from wormhole.push.parking import Arriving

__all__ = [
    "LEAST_LEASE_S",
    "LONGEST_ID",
    "MOST_LEASE_S",
    "ReplayRun",
    "cause",
    "check_id",
    "hashed",
    "mine",
    "opened",
    "parked",
    "permitted",
    "stale",
    "taken",
]

LONGEST_ID: Final = 100
LEAST_LEASE_S, MOST_LEASE_S = 1.0, 3600.0
# Seconds for which a granted rate counts. A task uses an answer for half of them. The answer may have taken the other
# half to arrive.
_SHARE_S: Final = 10.0


@dataclass(slots=True)
class ReplayRun:
    """The state of a replay in this process, in addition to the stored state. ``until``: when its lease ends (seconds
    of the monotonic clock).

    ``epoch``: the newest epoch that a task opened here; 0: none is open. ``filter_hash``: the hash of the filter that
    the task received. ``waits``: why no task has opened the flow; ``trouble``: why the replay cannot be ended although
    its lease ran out. ``updates``, ``bytes``: the acknowledged updates and their size. ``rate``: bytes per second that
    the task may push, as the driver last reported; ``granted``: the rate in the last answer to a task, at
    ``granted_at``. ``parking``: the updates that are being parked in this epoch. ``subscriber``: the subscriber to
    which the task pushes; ``max_frame``: bytes of the largest message to it; ``parked_by``: its identity.
    ``allowance``: the work that the tasks may cause.
    """

    id: str
    until: float
    epoch: int = 0
    filter_hash: str = ""
    waits: Problem = NO_PROBLEM
    trouble: str = ""
    updates: int = 0
    bytes: int = 0
    rate: float = 0.0
    granted: float = 0.0
    granted_at: float = 0.0
    parking: Arriving = field(default_factory=Arriving)
    subscriber: SubscriberInfo | None = None
    max_frame: int = 0
    parked_by: str = ""
    allowance: TokenBucket | None = None

    def pays(self, reading: Reading, work: float, now: float) -> float:
        """Charge ``work`` that a task caused, as :mod:`wormhole.push.allowance` counts it. Returns the seconds until
        the task may cause more."""
        if self.allowance is None:
            self.allowance = reading.allowance(now)
        return self.allowance.wait_s(work, now)

    def fence(self) -> None:
        """End the epoch for its task."""
        self.epoch = 0
        self.parking.drop()

    def answer(self, now: float) -> None:
        """Note that a task made a request at ``now``. The answer contains the rate that the task may use."""
        self.granted, self.granted_at = self.rate, now

    def heard(self, now: float) -> float:
        """The granted rate that a task may still use. It lapses if the task makes no further request."""
        return self.granted if now < self.granted_at + _SHARE_S else 0.0


def check_id(text: str) -> str:
    """``text``, if it is a valid name of a replay. Raises :class:`~publisher.flows.refused_error.RefusedError`."""
    if not text or len(text) > LONGEST_ID or not text.isprintable():
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{text[:LONGEST_ID]!r} is no id of a replay",
            hint=f"give 1 to {LONGEST_ID} printable characters",
        )
    return text


def hashed(ticket: str) -> str:
    """The form in which a ticket is stored."""
    return hashlib.sha256(ticket.encode()).hexdigest()


def taken(
    flow: str, now: ReplayControl | None, wanted: ReplayControl, leased: bool, resumes: float = 0.0
) -> ReplayControl:
    """The record to store when the replay ``wanted`` begins. ``now``: the replay that has the flow; ``leased``: whether
    its lease is valid.

    A replay with the id of ``now`` continues it. ``resumes``: continue only the replay that began at that time. Raises
    :class:`~publisher.flows.refused_error.RefusedError` if another replay has the flow.
    """
    if resumes and mine(flow, now, wanted.id).started_s != resumes:
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"there is no replay {wanted.id!r} of it any more: it ended, and another one of that name has the flow",
            flow=flow,
            hint=f"look again with `wormholectl replay --resume {wanted.id}`",
        )
    if now is None or now.id == wanted.id:
        if now is None:
            return wanted
        state = ReplayState.HELD if now.state is ReplayState.NEEDS_REPLAY else now.state
        return replace(now, who=wanted.who, lease_s=wanted.lease_s, ticket=wanted.ticket, state=state)
    if leased and now.state is not ReplayState.NEEDS_REPLAY:
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"replay {now.id} by {now.who} has the flow",
            flow=flow,
            hint=(
                f"wait for it, take it up with `wormholectl replay --resume {now.id}`, or `wormholectl replay "
                f"--cancel {now.id}`"
            ),
        )
    # The former replay's subscriber may still process what it pushed.
    return replace(wanted, subscriber=now.subscriber)


def mine(flow: str, now: ReplayControl | None, replay: str) -> ReplayControl:
    """``now``, the replay that has the flow, if its id is ``replay``.

    Raises :class:`~publisher.flows.refused_error.RefusedError` otherwise.
    """
    if now is None or now.id != replay:
        there = "the flow is live" if now is None else f"replay {now.id} by {now.who} has it"
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"there is no replay {replay!r} of it any more: {there}",
            flow=flow,
            hint="it was finished or cancelled, or its driver was silent for longer than its lease",
        )
    return now


def permitted(flow: str, now: ReplayControl | None, replay: str, ticket: str, *, at_work: bool = True) -> ReplayControl:
    """``now``, like :func:`mine`, if ``ticket`` is its ticket. ``at_work``: also refuse a replay that was given up."""
    found = mine(flow, now, replay)
    if not hmac.compare_digest(found.ticket, hashed(ticket)):
        raise RefusedError(
            grpc.StatusCode.UNAUTHENTICATED,
            f"that is not the ticket of replay {replay}: another driver took it up",
            flow=flow,
            hint="leave it to that one, or take it up again with `begin`",
        )
    if at_work and found.state is ReplayState.NEEDS_REPLAY:
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            (
                f"the lease of replay {replay} ran out, or it was cancelled, and the log no longer holds the flow's "
                "datamarker"
            ),
            flow=flow,
            hint=f"take it up again with `wormholectl replay --resume {replay}`",
        )
    return found


def opened(now: ReplayControl, subscriber: str, opener: str) -> ReplayControl:
    """The record to store when the task ``opener`` begins to push to ``subscriber``."""
    return replace(now, state=ReplayState.REPLAYING, attempts=now.attempts + 1, subscriber=subscriber, opener=opener)


def cause(flow: str, replay: ReplayControl, run: ReplayRun | None) -> Problem:
    """Why no subscriber receives the flow from the log."""
    waits = "" if run is None else run.waits.text
    about = f"replay {replay.id} by {replay.who}"
    if replay.state is ReplayState.NEEDS_REPLAY:
        return Problem(
            f"{about} was given up, and the log no longer holds its datamarker{f' ({waits})' if waits else ''}",
            f"`wormholectl replay --resume {replay.id}`, or go on without: `wormholectl flows accept-loss {flow}`",
            code="replay-needed",
        )
    if run is not None and run.trouble:
        return Problem(
            f"{about} is over, its driver is silent; whether the log holds the datamarker is not known: {run.trouble}",
            code="replay-needed",
        )
    if run is not None and run.epoch:
        return Problem(f"{about} pushes to {replay.subscriber}", code="flow-replaying")
    return Problem(
        f"held for {about}{f': {waits}' if waits else ''}", "" if run is None else run.waits.hint, code="flow-replaying"
    )


def parked(number: int) -> Problem:
    """Why a task that does not support parked updates is refused."""
    return Problem(
        f"{number} updates are parked, and the tasks of this replay are of an earlier release, which would overtake "
        "them",
        "bring what runs `wormholectl replay`, and Spark's executors, up to date",
        code="release-too-old",
    )


def stale(flow: str, why: str) -> RefusedError:
    """The error for a task whose epoch is over. ``why``: the reason."""
    return RefusedError(
        grpc.StatusCode.ABORTED,
        f"the epoch is over: {why}",
        flow=flow,
        hint="let go of the flow, then open it again",
    )
