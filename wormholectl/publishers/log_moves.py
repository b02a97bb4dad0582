"""Plans the move of a log to another publisher, from the log's owner and its candidates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from publisher.flows.takeover_delay import attempt
from wormhole.admin.admin_service import nearest
from wormhole.admin.discovery import group_of
from wormhole.config import DatasetConfig, preference
from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners
from wormhole.coordination.standbys import owner_name
from wormhole.model.errors import Fatal, UsageError
from wormhole.model.problem import Problem

__all__ = ["PlannedMove", "expected_candidates", "planned_move", "refusal"]

_LISTED: Final = "wormholectl publishers"


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The planned move. ``candidate``: the new owner of the log. ``warnings``: the negative effects of the move."""

    group: LogGroup
    owners: LogOwners
    candidate: CandidateInfo
    warnings: tuple[str, ...] = ()


def planned_move(
    log: str, to: str, known: Mapping[LogGroup, LogOwners], datasets: Mapping[str, DatasetConfig]
) -> PlannedMove:
    """The move that ``wormholectl publishers move LOG --to TO`` requests.

    ``log``: ``DATASET/LOG``, or ``DATASET/COPY/LOG`` if several copies have a log of this name. ``to``: ``COPY@HOST``,
    or ``HOST`` if only one candidate is on that host. Raises :class:`~wormhole.model.errors.UsageError` for an unknown
    log or candidate, and for the present owner. Raises :class:`~wormhole.model.errors.Fatal` for a candidate that
    cannot take over.
    """
    group = _group_named(log, known, datasets)
    owners = known[group]
    candidate = _candidate_named(to, group, owners, expected_candidates(group, datasets))
    if why := refusal(candidate, owners):
        raise Fatal(
            f"{candidate.name} cannot take {group} over: {why.text}",
            hint=why.hint or f"`{_LISTED}`",
            code="copy-not-ready",
        )
    if not candidate.lacking:
        return PlannedMove(group, owners, candidate)
    lacks = (
        f"{candidate.name} lacks {candidate.lacking}, which was delivered: the flows of {group} stop there as "
        "diverged, and their applications decide whether they go on"
    )
    return PlannedMove(group, owners, candidate, (lacks,))


def refusal(candidate: CandidateInfo, owners: LogOwners) -> Problem:
    """Why the candidate would never take the log over; empty if it would."""
    return attempt(replace(candidate, lacking=""), owners, 0.0).why


def _group_named(log: str, known: Mapping[LogGroup, LogOwners], datasets: Mapping[str, DatasetConfig]) -> LogGroup:
    parts = log.split("/")
    if not known:
        raise UsageError(
            "no log has an owner or a publisher that stands by",
            hint='only logs with datamarkers in ZooKeeper have (markers = "zookeeper"): see docs/failover.md',
            code="flow-unknown",
        )
    if len(parts) == 3:
        group = group_of(datasets, log)
        if group in known:
            return group
    else:
        found = [one for one in known if f"{one.dataset}/{one.log}" == log]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{log} is a log of several copies", hint=f"name one: {' or '.join(map(str, found))}")
    names = [str(one) if len(parts) == 3 else f"{one.dataset}/{one.log}" for one in known]
    raise UsageError(
        f"no log {log!r} has an owner or a publisher that stands by",
        hint=nearest(log, names, "log", _LISTED),
        code="flow-unknown",
    )


def expected_candidates(group: LogGroup, datasets: Mapping[str, DatasetConfig]) -> list[str]:
    """The publishers that the configuration names for the log, as COPY@HOST, the preferred one first."""
    found = []
    dataset = datasets.get(group.dataset)
    if dataset is None:
        return []
    for copy, one in dataset.copies.items():
        for name, log in one.logs.items():
            if group_of(datasets, f"{group.dataset}/{copy}/{name}") == group:
                found += [(preference(dataset, copy, name, host), f"{copy}@{host}") for host in log.candidates]
    return [name for _, name in sorted(found)]


def _candidate_named(to: str, group: LogGroup, owners: LogOwners, expected: Sequence[str]) -> CandidateInfo:
    found = [one for one in owners.candidates if to in (one.name, one.host)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(one.name for one in found)
        raise UsageError(f"several publishers that stand by for {group} are on {to}", hint=f"name one: {names}")
    owner = owner_name(owners)
    if owners.owner is not None and to in (owner, owners.owner.host):
        raise UsageError(f"{owner} owns {group} already", hint=f"`{_LISTED}` lists who stands by for it")
    if down := [name for name in expected if to in (name, name.partition("@")[2])]:
        host = down[0].partition("@")[2]
        raise UsageError(
            f"{down[0]} is in the configuration of {group}, and its publisher is not there",
            hint=f"start `wormholectl monitor run` on {host}; where it runs, its page shows why the publisher does not",
        )
    names_of = [one.name for one in owners.candidates]
    if not names_of:
        hosts = dict.fromkeys(host for _, _, host in (name.partition("@") for name in expected))
        if owners.owner is not None:
            hosts.pop(owners.owner.host, None)
        raise UsageError(
            f"no publisher stands by for {group}",
            hint=f"start `wormholectl monitor run` on {' or '.join(hosts)}"
            if hosts
            else "name a second host in `hosts`, and run a monitor there",
            code="no-publisher",
        )
    raise UsageError(
        f"{to} does not stand by for {group}", hint=nearest(to, names_of, "candidate", _LISTED), code="flow-unknown"
    )
