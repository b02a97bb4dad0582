"""The parked updates of a flow, in the publisher's memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from wormhole.ports.dead_letters import DeadLetter, ParkedRows, for_receiver, parked_rows, with_letter

__all__ = ["FlowParking"]


@dataclass(slots=True, eq=False)
class FlowParking:
    """See the module. Other modules read the attributes and change them only through the methods."""

    letters: tuple[DeadLetter, ...] | None = None
    """The parked updates, in the order of the log; ``None`` until they are read from the store."""
    receiver: str = ""
    """The proven identity of the subscriber that has or had the flow."""
    _answer: asyncio.Future[bool] | None = None

    @property
    def known(self) -> tuple[DeadLetter, ...]:
        """The parked updates; empty until they are read."""
        return self.letters or ()

    @property
    def count(self) -> int:
        """The number of parked updates; 0 until they are read."""
        return len(self.known)

    @property
    def next_again(self) -> DeadLetter | None:
        """The next parked update to deliver again, or ``None``."""
        return next((one for one in self.known if one.retrying), None)

    def rows(self, *, replayed: bool) -> ParkedRows:
        """The rows with parked updates. Every later update of these rows is parked too. In a mass replay (``replayed``)
        this includes rows whose updates are marked for delivery, because they are delivered only once the flow is live.
        """
        return parked_rows(self.known, also_retried=replayed)

    def found(self, letters: tuple[DeadLetter, ...]) -> None:
        """Take over the ``letters`` that the store holds."""
        self.letters = letters

    def park(self, letter: DeadLetter, instead: DeadLetter | None) -> None:
        """Add the parked ``letter``, which replaces ``instead``."""
        self.letters = with_letter(tuple(one for one in self.known if one is not instead), letter)

    def remove(self, letter: DeadLetter) -> None:
        """Remove ``letter``, which is not parked any more."""
        self.letters = tuple(one for one in self.known if one is not letter)

    def received_by(self, receiver: str) -> None:
        """Note that the subscriber ``receiver`` gets the flow. It does not get updates that another one parked."""
        self.receiver = receiver
        self.letters = for_receiver(self.known, receiver)

    def expect_answer(self) -> asyncio.Future[bool]:
        """Expect the answer to a parked update that is sent again. The future becomes true when the update is
        acknowledged, and false when its epoch ends."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def answer(self, *, acked: bool) -> None:
        """Complete the future of :meth:`expect_answer`. ``acked``: true after the ack, false after the epoch's end."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(acked)
