"""Describes the owner of a log, and why a candidate cannot take the log over, for commands and publishers. Pure."""

from __future__ import annotations

from wormhole.coordination.port import CandidateInfo, LogOwners
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["candidate_of", "owner_name", "why_not"]


def owner_name(owners: LogOwners | None) -> str:
    """The owner's name as a candidate, ``COPY@HOST``; empty: the log has no owner."""
    owner = None if owners is None else owners.owner
    return "" if owner is None else f"{owner.copy}@{owner.host}"


def candidate_of(owners: LogOwners | None, name: str) -> CandidateInfo | None:
    """The candidate with this name; ``None``: it is not announced, or it owns the log."""
    return None if owners is None else next((one for one in owners.candidates if one.name == name), None)


def why_not(candidate: CandidateInfo) -> Problem:
    """The reason that the candidate reports for not being able to take the log over; empty: none."""
    if not candidate.ready:
        return Problem(candidate.waits or "it has not asked its datastore yet", candidate.hint, code="in-progress")
    if candidate.lacking:
        return Problem(
            f"it lacks {candidate.lacking}, which was delivered", "let its replication catch up", code="copy-behind"
        )
    return NO_PROBLEM
