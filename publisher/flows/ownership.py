"""Whether this process may serve the flows of its log. This depends on its claim, its registration, and how long ago
the coordination service answered.

Two publishers of one log would take its flows from each other. If several publishers can write the datamarkers of a
log, only the owner of the log serves it (:mod:`publisher.flows.candidacy`). With local markers, only the registered
publisher serves it. Without a coordination service (static form), a publisher yields at each subscriber to another
publisher that is connected there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from publisher.flows.candidacy import Candidacy
from publisher.flows.owner_watch import OwnerWatch
from publisher.flows.part_reports import Row
from wormhole.coordination.port import Contact, Coordinator, LogClaim, LogOwners, PublisherInfo, Registration
from wormhole.coordination.retry import retry_during_outage
from wormhole.coordination.standbys import candidate_of, owner_name, why_not
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import cancel_all
from wormhole.metrics import catalogue as c
from wormhole.model.errors import Retryable
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["LogHandedOver", "Ownership"]


class LogHandedOver(Retryable):
    """This process no longer serves the log, because another process serves it or has to. It may become a candidate
    again.

    ``gone``: another process may own the log already, so no subscriber is asked to release anything.
    """

    def __init__(self, message: str, *, gone: bool) -> None:
        super().__init__(message)
        self.gone = gone


class Ownership:
    """See the module. ``fenced``: whether other publishers can write the markers too, so that nothing is sent after the
    lease ends. ``candidacy``: how this process becomes the owner of the log; ``None``: the registration alone decides.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        fenced: bool,
        candidacy: Candidacy | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._coordinator = coordinator
        self._fenced = fenced
        self._candidacy = candidacy
        self._clock = clock
        self._claim: LogClaim | None = None
        self._watch: OwnerWatch | None = None
        self._former: LogClaim | None = None
        self._registration: Registration | None = None
        self._registers = ""
        self._outdated = ""
        self._distrusted = asyncio.Event()

    @property
    def waits(self) -> str:
        """Why the claim or the registration is delayed; empty if neither is."""
        return str(self.standby) or self._registers

    @property
    def standby(self) -> Problem:
        """Why this candidate does not own the log; empty once it does, and for a log without candidates."""
        return NO_PROBLEM if self._candidacy is None or self._claim is not None else self._candidacy.waits

    @property
    def host(self) -> str:
        """The configured name of this host; empty if no other process could own the log."""
        return "" if self._candidacy is None else self._candidacy.candidate.host

    @property
    def candidate(self) -> str:
        """The name of this process among the processes that could own the log; empty if no other process could."""
        return "" if self._candidacy is None else self._candidacy.name

    @property
    def term(self) -> int:
        """The term in which this process owns the log; 0 while it does not own the log."""
        return 0 if self._claim is None else self._claim.term

    @property
    def owners(self) -> LogOwners | None:
        """The last report of the log's owner and candidates; ``None`` for a log without candidates."""
        known = self._watch or self._candidacy
        return None if known is None else known.owners

    def fence(self) -> str:
        """The fencing token that every write of the owner checks; empty before the first claim, and without candidates.
        It stays after the claim is given up, so that late writes of threads are refused.
        """
        claim = self._claim or self._former
        return "" if claim is None else claim.fence()

    async def take(self, info: PublisherInfo) -> None:
        """Wait until this process owns the log and is registered. The wait has no time limit.

        Raises the errors of :class:`Coordinator` that are not retryable, and :class:`LogHandedOver` if another process
        takes the log before the registration.
        """
        if self._candidacy is not None:
            self._claim = await self._candidacy.win(info)
            self._watch = self._candidacy.watch(self._claim)
        self._registers = "not registered yet"

        def trouble(error: Exception) -> None:
            self._registers = str(error)

        register = partial(self._coordinator.register_publisher, info)
        what = f"publisher of {info.dataset}/{info.copy}/{info.log}"
        self._registration = await self._unless_lost(retry_during_outage(register, what, trouble))
        self._registers = ""

    async def _unless_lost(self, registering: Coroutine[Any, Any, Registration]) -> Registration:
        """Register this process. The registration waits while another owner of the log is registered. Raises
        :class:`LogHandedOver` if the claim is lost meanwhile.
        """
        if self._claim is None:
            return await registering
        registered, lost = asyncio.ensure_future(registering), asyncio.ensure_future(self._claim.lost())
        try:
            await asyncio.wait((registered, lost), return_when=asyncio.FIRST_COMPLETED)
            if not registered.done():
                raise LogHandedOver(f"the log is another publisher's: {lost.result()}", gone=True)
            return registered.result()
        finally:
            await cancel_all(registered, lost)

    def distrust(self, reason: str) -> None:
        """Make this process begin anew, because the stored state of the flows is older than its state in memory."""
        self._outdated = reason
        self._distrusted.set()

    async def until_another(self, troubled: Callable[[], bool]) -> None:
        """Raise :class:`LogHandedOver` once another process owns the log, once another process has to own it (an
        operator moved it, or the log cannot be read here), or once this process has to begin anew. ``troubled``:
        whether the log cannot be read now.
        """
        claim, watch = self._claim, self._watch
        if claim is None or watch is None:
            return
        lost, moved = asyncio.ensure_future(claim.lost()), asyncio.ensure_future(watch.moved())
        outdone = asyncio.ensure_future(watch.outdone(troubled))
        distrusted = asyncio.ensure_future(self._distrusted.wait())
        watched = (lost, moved, outdone, distrusted)
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                raise LogHandedOver(f"the log is another publisher's: {lost.result()}", gone=True)
            if distrusted.done():
                raise LogHandedOver(f"what is stored of the log is older than it was: {self._outdated}", gone=True)
            if moved.done():
                raise LogHandedOver(f"the log is moved to {moved.result()}", gone=False)
            raise LogHandedOver(f"the log is left to others: {outdone.result()}", gone=False)
        finally:
            await cancel_all(*watched)

    async def give_up(self) -> None:
        """Withdraw claim and registration; idempotent."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._former = claim
            await claim.close()  # before the registration: the next owner waits for the claim
        registration, self._registration = self._registration, None
        if registration is not None:
            await registration.close()

    def ours(self) -> bool:
        """Whether this process owns the log, as far as it knows."""
        claimed = self._candidacy is None if self._claim is None else self._claim.held
        return claimed and (self._registration is None or self._registration.held)

    def sole(self) -> bool:
        """Whether no other publisher may serve the log, on any host. If so, any epoch that a subscriber holds is from
        this publisher or a former one.
        """
        registration = self._registration
        proven = registration is not None and registration.exclusive and self.ours()
        return proven and self._coordinator.contact is Contact.CONNECTED and self._leased()

    def may_assign(self) -> bool:
        """Whether flows may be given to subscribers."""
        return self._coordinator.contact is Contact.CONNECTED and self.ours()

    def may_send(self) -> bool:
        """Whether updates may be sent. With local markers, updates of assigned flows may also be sent without contact
        to coordination."""
        return self.ours() and (not self._fenced or self._leased())

    def why_silent(self) -> Problem:
        """Why :meth:`may_send` is false."""
        if self.ours() or not self._leased():  # without a lease the owner is not known
            silence = self._clock.monotonic() - self._coordinator.last_contact()
            return Problem(
                f"ZooKeeper was not heard for {silence:.0f} s, which is beyond the lease, so another publisher may own "
                "the flows",
                "bring ZooKeeper back; deliveries then go on by themselves",
                code="coordination-lost",
            )
        return Problem(
            "another publisher took the log over while contact with ZooKeeper was lost",
            "`wormholectl publishers` names it; stop the one that is not meant to serve the log",
            code="owner-elsewhere",
        )

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """See :class:`~publisher.flows.part_reports.Described`."""
        message.term, message.candidate = self.term, self.candidate
        standby = problem_to_message(self.standby)
        if standby is not None:
            message.owner = owner_name(self.owners)
            message.standby.CopyFrom(standby)

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        stands_by, owners = bool(self.standby), self.owners
        yield c.PUBLISHER_SENDS, None if stands_by else self.may_send()
        if owners is None or self._candidacy is None:
            return
        yield c.PUBLISHER_OWNS, not stands_by, self._candidacy.candidate.group.group
        yield c.PUBLISHER_TERM, self.term or None
        me = candidate_of(owners, self.candidate)
        if stands_by and me is not None:
            yield c.PUBLISHER_STANDBY_READY, not why_not(me) or me.promotable

    def _leased(self) -> bool:
        return self._clock.monotonic() < self._coordinator.last_contact() + self._coordinator.lease_s()
