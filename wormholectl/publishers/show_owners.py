"""Shows the owner of each log, its standbys and its last takeovers, as tables or as JSON objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners, Term
from wormhole.coordination.standbys import owner_name, why_not
from wormholectl.publishers.log_moves import refusal
from wormholectl.show.printer import local, next_step_lines, print_table, print_text, utc

__all__ = ["log_object", "show_log_owners"]

_TAKEOVERS: Final = 5


def show_log_owners(known: Mapping[LogGroup, LogOwners]) -> None:
    """Tables of the publishers that stand by and of the last takeovers, each only if there are any."""
    listed = sorted(known.items(), key=lambda one: str(one[0]))
    standbys = [_standby(group, owners, one) for group, owners in listed for one in owners.candidates]
    takeovers = [row for group, owners in listed for row in _takeovers(group, owners.terms)]
    if standbys:
        print_table(("LOG", "OWNER", "STANDBY", "SINCE", "TAKES OVER"), standbys, "", "standbys")
    if takeovers:
        print_table(("LOG", "TERM", "AT", "FROM", "TO", "CAUSE"), takeovers, "", "the last takeovers")
    for group, owners in listed:
        _show_waiting_move(group, owners)


def _show_waiting_move(group: LogGroup, owners: LogOwners) -> None:
    """Print a move that waits for a candidate that does not stand by. Such a move remains if its command was killed, or
    if it was written by hand.
    """
    move = owners.move
    if move is None or any(one.name == move.to for one in owners.candidates):
        return
    asked = f"note: {group} was moved to {move.to} by {move.by} at {local(move.at)}"
    if move.to == owner_name(owners):
        print_text(f"{asked}; it owns the log already, and the request goes when the log is taken next")
        return
    print_text(
        f"{asked}, which does not stand by: the log moves there as soon as it does",
        *next_step_lines("`wormholectl publishers move` to another candidate replaces the request"),
    )


def _standby(group: LogGroup, owners: LogOwners, candidate: CandidateInfo) -> Sequence[str]:
    why = refusal(candidate, owners)
    if why:
        takes = f"no: {why.text}"
    elif candidate.lacking:
        takes = f"after its patience: {why_not(candidate).text}"
    else:
        takes = "yes"
    if owners.move is not None and owners.move.to == candidate.name:
        takes = f"{takes}; asked to by {owners.move.by}"
    return (
        str(group),
        owner_name(owners) or "no publisher",
        candidate.name,
        local(candidate.since),
        takes,
    )


def _takeovers(group: LogGroup, terms: Sequence[Term]) -> Iterator[Sequence[str]]:
    """The terms that began with a new owner of the log, the latest first."""
    found = [(before, after) for before, after in pairwise(terms) if _name(before) != _name(after)]
    for before, after in found[: -_TAKEOVERS - 1 : -1]:
        yield (str(group), str(after.number), local(after.since), _name(before), _name(after), after.why)


def _name(term: Term) -> str:
    return f"{term.copy}@{term.host}"


def log_object(group: LogGroup, owners: LogOwners) -> dict[str, Any]:
    """One log as a JSON object (docs/cli-schema.json: ``log-owners``)."""
    owner, move = owners.owner, owners.move
    return {
        "log": str(group),
        "owner": None
        if owner is None
        else {"name": owner_name(owners), "copy": owner.copy, "host": owner.host, "pid": owner.pid},
        "standbys": [_candidate_object(one, owners) for one in owners.candidates],
        "terms": [_term_object(one) for one in owners.terms],
        "move": None if move is None else {"to": move.to, "by": move.by, "at": utc(move.at)},
    }


def _candidate_object(candidate: CandidateInfo, owners: LogOwners) -> dict[str, Any]:
    why = refusal(candidate, owners) or why_not(candidate)
    return {
        "name": candidate.name,
        "copy": candidate.copy,
        "host": candidate.host,
        "pid": candidate.pid,
        "address": candidate.address or None,
        "rank": candidate.rank,
        "since": utc(candidate.since) if candidate.since else None,
        "server": candidate.server or None,
        "takes_over": not why,
        "lacking": candidate.lacking or None,
        "code": why.code or None,
        "waits": why.text or None,
        "next_step": why.hint or None,
    }


def _term_object(term: Term) -> dict[str, Any]:
    return {
        "number": term.number,
        "copy": term.copy,
        "host": term.host,
        "pid": term.pid,
        "server": term.server or None,
        "since": utc(term.since),
        "why": term.why,
    }
