"""A standby: one process as a candidate for a log that other processes may own.

A candidate announces how much of the log its datastore has, and watches which process owns the log. When the log has no
owner, the candidate begins a takeover (:mod:`publisher.flows.takeover_delay`). Before that it does not read the log and
writes nothing to the datastore.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from publisher.flows.datastore_queries import Looks
from publisher.flows.owner_watch import OwnerWatch
from publisher.flows.takeover_delay import attempt, moved_to
from wormhole.coordination.change_signal import Signal
from wormhole.coordination.port import (
    CandidateEntry,
    CandidateInfo,
    Coordinator,
    LogClaim,
    LogGroup,
    LogOwners,
    PublisherInfo,
)
from wormhole.coordination.retry import retry_during_outage
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import Retryable, WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.datastore import Standing

__all__ = ["Candidacy", "Candidate"]

_log = logging.getLogger(__name__)

_WAITING_S: Final = 2.0
"""Seconds between two checks of the datastore while the log has no owner, or this process could not take it over."""
_RESTING_S: Final = 30.0
"""Seconds between two checks otherwise."""


async def _no_groups() -> tuple[LogGroup, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process as a candidate for a log. ``rank``: 0 is the preferred candidate. ``host``: the name of its host in the
    configuration.

    ``patience_s``: how long it leaves the log to a copy that has more of the delivered updates. ``look``: queries its
    datastore; raises :class:`~wormhole.model.errors.WormholeError`. ``former``: returns groups in which publishers of
    another configuration may serve the same flows. The candidate waits until these groups have no owner. ``former``
    raises the errors of coordination.
    """

    group: LogGroup
    copy: str
    host: str
    rank: int
    patience_s: float
    look: Callable[[], Awaitable[Standing]]
    former: Callable[[], Awaitable[Collection[LogGroup]]] = _no_groups


class Candidacy:
    """``waits``: why this process does not own the log, and the next step; empty once it does."""

    def __init__(self, coordinator: Coordinator, candidate: Candidate, clock: Clock = SYSTEM_CLOCK) -> None:
        self.candidate = candidate
        self.waits = Problem("not announced yet", code="in-progress")
        self.owners = LogOwners(None, (), (), None)
        self._coordinator = coordinator
        self._clock = clock
        self._changed = Signal()
        self._seen = False
        self._looks = Looks(candidate.look, clock)

    @property
    def name(self) -> str:
        """The candidate's name in moves and lists."""
        return f"{self.candidate.copy}@{self.candidate.host}"

    async def win(self, info: PublisherInfo) -> LogClaim:
        """Wait until this process owns the log. The wait has no time limit. ``info``: describes this process.

        Raises the coordinator's errors that are not retryable.
        """
        candidate, now = self.candidate, self._clock.wall()
        self._seen = False
        me = CandidateInfo(
            candidate.copy,
            candidate.host,
            info.pid,
            info.address,
            info.started,
            candidate.rank,
            ready=False,
            since=now,
            waits="it has not asked its datastore yet",
        )
        async with self._announced(me) as entry, self._watched(), self._looks:
            return await self._win(me, info, entry)

    def watch(self, claim: LogClaim) -> OwnerWatch:
        """The watch of this process as the owner, with its ``claim``."""
        return OwnerWatch(self._coordinator, self.candidate.group, self.name, self.candidate.look, claim, self._clock)

    @asynccontextmanager
    async def _announced(self, me: CandidateInfo) -> AsyncIterator[CandidateEntry]:
        group = self.candidate.group

        def trouble(error: Exception) -> None:
            self.waits = (
                error.problem if isinstance(error, WormholeError) else Problem(str(error), code="internal-error")
            )

        entry = await retry_during_outage(
            lambda: self._coordinator.register_candidate(group, me), f"candidate {me.name} for {group}", trouble
        )
        try:
            yield entry
        finally:
            await entry.close()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Follow which process owns the log while the block runs."""

        async def follow() -> None:
            async for owners in self._coordinator.watch_log(self.candidate.group):
                self.owners, self._seen = owners, True
                self._changed.notify()

        task = asyncio.create_task(self._followed(follow), name=f"candidate-{self.candidate.group}")
        try:
            yield
        finally:
            await cancel_all(task)

    async def _followed(self, follow: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await follow()
            except WormholeError as error:
                self._explain(error.problem)
                await self._clock.sleep(_WAITING_S)

    async def _win(self, me: CandidateInfo, info: PublisherInfo, entry: CandidateEntry) -> LogClaim:
        looked_at, vacant_since, served = -math.inf, None, False
        while True:
            seen, now = self._changed.version, self._clock.monotonic()
            vacant = self._seen and self.owners.owner is None
            if not vacant:
                vacant_since = None
            elif vacant_since is None:
                # An attempt depends on the datastore's present state, except when an operator moved the log. Then no
                # candidate queries its datastore first.
                decided = me.server if moved_to(self.owners) == self.name else moved_to(self.owners)
                vacant_since, looked_at = now, now if decided else -math.inf
            wait = _RESTING_S if me.ready and not me.lacking and not vacant else _WAITING_S
            if now - looked_at >= wait:
                me, looked_at = await self._looked(me, entry), self._clock.monotonic()
                continue
            if vacant_since is not None:
                found = attempt(me, self.owners, self.candidate.patience_s)
                self._explain(
                    found.why or Problem("no publisher owns the log; this one is about to try", code="in-progress")
                )
                wait = min(vacant_since + found.after_s - now, _WAITING_S)
                if wait <= 0:
                    claim = await self._try(me, info, served=served)
                    if claim is not None:
                        return claim
                    wait = _WAITING_S
            else:
                served = served or self.owners.owner is not None
                self._explain(self._standing_by(me))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait(seen)

    async def _try(self, me: CandidateInfo, info: PublisherInfo, *, served: bool) -> LogClaim | None:
        """Try to own the log. Returns ``None`` if another process was faster, or if contact is lost."""
        group, move = self.candidate.group, self.owners.move
        why = "the last owner is gone" if served or self.owners.terms else "it had no owner"
        if move is not None and move.to == me.name:
            why = f"moved by {move.by}"
        try:
            if await self._has_former_owner():
                return None
            claim = await self._coordinator.own_log(group, info, server=me.server, why=why)
            if await self._is_served_beside(claim):
                return None
        except Retryable as error:
            self._explain(error.problem)
            return None
        self.waits = NO_PROBLEM
        _log.info("%s owns %s in term %d: %s", me.name, group, claim.term, why)
        return claim

    async def _is_served_beside(self, claim: LogClaim) -> bool:
        """Whether a publisher of another configuration became the owner of its log after this process checked that and
        before ``claim``. Then ``claim`` is given up.
        """
        beside = True
        try:
            beside = await self._has_former_owner()
        finally:
            if beside:
                await claim.close()
        return beside

    async def _has_former_owner(self) -> bool:
        """Whether a publisher of another configuration still serves the flows."""
        former = await self.candidate.former()
        for group, owners in (await self._coordinator.log_owners(former)).items() if former else ():
            owner = owners.owner
            if owner is not None:
                text = f"process {owner.pid} on {owner.host} still serves {group}, as configured before"
                self._explain(Problem(text, "let its monitor restart it, or stop it", code="log-unowned"))
                return True
        return False

    async def _looked(self, me: CandidateInfo, entry: CandidateEntry) -> CandidateInfo:
        """Query the datastore and announce its state. Returns ``me`` with that state."""
        found = await self._looks.ask()
        after = replace(
            me,
            server=found.server or me.server,
            ready=found.ready,
            lacking=found.lacking,
            waits=found.problem.text,
            hint=found.problem.hint,
            promotable=found.promotable,
        )
        if after != me:
            entry.update(after)
        return after

    def _standing_by(self, me: CandidateInfo) -> Problem:
        owner = self.owners.owner
        if owner is None:
            return Problem("who owns the log is not known yet", code="in-progress")
        term = self.owners.terms[-1].number if self.owners.terms else 0
        text = f"stands by: {owner.copy}@{owner.host} (process {owner.pid}) owns the log, in term {term}"
        if not me.ready:
            return Problem(f"{text}; it could not take over: {me.waits}", me.hint, code="copy-not-ready")
        other = attempt(me, self.owners, self.candidate.patience_s)
        if other.why:
            return replace(other.why, text=f"{text}; it could not take over: {other.why.text}")
        return Problem(text, code="stands-by")

    def _explain(self, waits: Problem) -> None:
        if waits != self.waits:
            _log.info("%s: %s", self.candidate.group, waits)
        self.waits = waits
