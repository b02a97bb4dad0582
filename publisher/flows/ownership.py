"""Whether this process may act for the flows of its log: its registration, and how long ago the coordination service
answered.

Two publishers of one log would take its flows from each other. With a coordination service the registered one serves;
without one (static form) that is unknown, so a publisher yields at each subscriber to another one that is connected
there.
"""

from __future__ import annotations

from functools import partial

from wormhole.coordination.port import Contact, Coordinator, PublisherInfo, Registration
from wormhole.coordination.retry import retry_during_outage
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.problem import Problem

__all__ = ["Ownership"]


class Ownership:
    """``fenced``: the markers are where other publishers can write them too, so nothing is sent beyond the lease."""

    def __init__(self, coordinator: Coordinator, *, fenced: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._coordinator = coordinator
        self._fenced = fenced
        self._clock = clock
        self._registration: Registration | None = None
        self.waits = ""
        """What the registration waits for; empty while it does not."""

    async def take(self, info: PublisherInfo) -> None:
        """Return once this process is registered, however long another one is. Raises what
        :meth:`Coordinator.register_publisher` raises and is not retryable.
        """
        self.waits = "not registered yet"

        def trouble(error: Exception) -> None:
            self.waits = str(error)

        register = partial(self._coordinator.register_publisher, info)
        what = f"publisher of {info.dataset}/{info.copy}/{info.log}"
        self._registration = await retry_during_outage(register, what, trouble)
        self.waits = ""

    async def give_up(self) -> None:
        """Withdraw the registration; idempotent."""
        registration, self._registration = self._registration, None
        if registration is not None:
            await registration.close()

    def ours(self) -> bool:
        """Whether no other publisher is known to have taken the log over while our session was lost."""
        return self._registration is None or self._registration.held

    def sole(self) -> bool:
        """Whether no other publisher of the log may act, on any host: then an epoch that a subscriber holds is an old
        one.
        """
        registration = self._registration
        proven = registration is not None and registration.exclusive and registration.held
        return proven and self._coordinator.contact is Contact.CONNECTED and self._leased()

    def may_assign(self) -> bool:
        """Whether flows may be given to subscribers."""
        return self._coordinator.contact is Contact.CONNECTED and self.ours()

    def may_send(self) -> bool:
        """Whether updates may be sent: with local markers also without contact, for what is assigned."""
        return self.ours() and (not self._fenced or self._leased())

    def why_silent(self) -> Problem:
        """Why :meth:`may_send` is false."""
        if not self.ours():
            return Problem(
                "another publisher took the log over while contact with ZooKeeper was lost",
                "`wormholectl publishers` names it; stop the one that is not meant to serve the log",
            )
        silence = self._clock.monotonic() - self._coordinator.last_contact()
        return Problem(
            f"ZooKeeper was not heard for {silence:.0f} s, which is beyond the lease, so another publisher may own "
            "the flows",
            "bring ZooKeeper back; deliveries then go on by themselves",
        )

    def _leased(self) -> bool:
        return self._clock.monotonic() < self._coordinator.last_contact() + self._coordinator.lease_s()
