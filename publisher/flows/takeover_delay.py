"""Delays a candidate's attempt to own a log, so that the preferred candidate usually tries first. Pure.

This module does not decide which process owns a log. A transaction of the coordination service, which only one process
can commit, decides that (:meth:`wormhole.coordination.port.Coordinator.own_log`). A wrong delay only costs time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from wormhole.coordination.port import CandidateInfo, LogOwners
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["STEP_S", "UNREADY_S", "Attempt", "attempt", "moved_to", "successor"]

STEP_S: Final = 0.5
"""Seconds by which each candidate waits longer than the candidate preferred to it."""
UNREADY_S: Final = 5.0
"""How many seconds after the others' patience a candidate tries whose datastore cannot be read.

It becomes the owner nevertheless, because operators can inspect and change flows only through an owner."""
_MOST_AHEAD: Final = 10
"""The largest number of preferred candidates that delay an attempt."""
_MOVED_S: Final = 5.0
"""How many seconds other candidates leave a log to the candidate to which an operator moved it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """When to try. ``after_s``: seconds after the log lost its owner; infinite while this candidate must not try.
    ``why``: for operators, why the candidate leaves the log to others; empty if it only lets preferred candidates try
    first.
    """

    after_s: float
    why: Problem = NO_PROBLEM


def attempt(me: CandidateInfo, owners: LogOwners, patience_s: float) -> Attempt:
    """When ``me`` tries to own a log without an owner.

    ``patience_s``: how long a candidate that lacks delivered updates leaves the log to a more complete one.
    """
    other = _other_server(me, owners)
    if other is not None:
        return Attempt(math.inf, other)
    moved = owners.move
    if moved is not None and moved.to == me.name:
        return Attempt(0.0)
    live = [one for one in owners.candidates if one.name != me.name]
    ahead = sum(one.ready and (one.rank, one.name) < (me.rank, me.name) for one in live)
    delay = STEP_S * min(ahead, _MOST_AHEAD)
    if moved is not None and any(one.name == moved.to for one in live):
        delay += _MOVED_S
    if not me.ready:
        waits = Problem(me.waits or "its datastore cannot be read", me.hint, code="copy-not-ready")
        return Attempt(delay + patience_s + UNREADY_S, waits)
    if not me.lacking:
        return Attempt(delay)
    waits = Problem(
        f"it lacks {me.lacking}, which was delivered; it waits {patience_s:g} s for a copy that has it",
        "let its replication catch up",
        code="copy-behind",
    )
    return Attempt(max(delay, patience_s), waits)


def moved_to(owners: LogOwners) -> str:
    """The candidate to which an operator moved the log, if it is present; otherwise empty."""
    move = owners.move
    return move.to if move is not None and any(one.name == move.to for one in owners.candidates) else ""


def successor(owners: LogOwners) -> str:
    """The name of the candidate that could replace an owner that cannot read its datastore; empty without one."""
    vacant = replace(owners, owner=None)  # the owner's server is ignored: the owner cannot read it
    able = [one for one in owners.candidates if one.ready and _other_server(one, vacant) is None]
    return min(able, key=lambda one: (bool(one.lacking), one.rank, one.name)).name if able else ""


def _other_server(me: CandidateInfo, owners: LogOwners) -> Problem | None:
    """The problem if ``me`` reads a server that is not the server of its copy; ``None`` without a sign of that.

    The server of a copy is the server through which the copy was served last, if the owner or a ready candidate reads
    it. If none of them does, the server was replaced.
    """
    last = next((term.server for term in reversed(owners.terms) if term.copy == me.copy and term.server), "")
    if not me.server or not last or me.server == last:
        return None
    others = (one for one in owners.candidates if one.copy == me.copy and one.name != me.name)
    same = [one for one in others if one.ready and one.server == last]
    if owners.owner is not None and owners.owner.copy == me.copy:
        named = f"the owner of the log on {owners.owner.host}"
    elif same:
        named = same[0].name
    else:
        return None
    return Problem(
        f"{me.name} reads the server {me.server}, and {named} reads {last} under the same copy {me.copy}",
        f"correct the source on one of the two hosts, or make a copy of its own of {me.server}",
        code="config-invalid",
    )
