"""The parked updates of a flow, in the publisher's memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from wormhole.ports.dead_letters import DeadLetter, ParkedRows, for_receiver, parked_rows, with_letter

__all__ = ["FlowParking"]


@dataclass(slots=True, eq=False)
class FlowParking:
    """Other modules read the attributes and call the methods."""

    letters: tuple[DeadLetter, ...] | None = None
    """The parked updates, in the order of the log. ``None``: they were not read yet."""
    receiver: str = ""
    """The proven identity of the subscriber that has or had the flow."""
    _answer: asyncio.Future[bool] | None = None

    @property
    def known(self) -> tuple[DeadLetter, ...]:
        """The parked updates, as far as they were read."""
        return self.letters or ()

    @property
    def count(self) -> int:
        """The number of parked updates, as far as they were read."""
        return len(self.known)

    @property
    def next_again(self) -> DeadLetter | None:
        """The next parked update to be delivered again."""
        return next((one for one in self.known if one.retrying), None)

    def rows(self, *, replayed: bool) -> ParkedRows:
        """The rows of which every later update is parked, too. In a mass replay (``replayed``) also the rows of updates
        that are delivered again once the flow is live.
        """
        return parked_rows(self.known, also_retried=replayed)

    def found(self, letters: tuple[DeadLetter, ...]) -> None:
        """The marker store holds ``letters``."""
        self.letters = letters

    def park(self, letter: DeadLetter, instead: DeadLetter | None) -> None:
        """``letter`` is parked, in place of ``instead``."""
        self.letters = with_letter(tuple(one for one in self.known if one is not instead), letter)

    def remove(self, letter: DeadLetter) -> None:
        """``letter`` is not parked any more."""
        self.letters = tuple(one for one in self.known if one is not letter)

    def received_by(self, receiver: str) -> None:
        """``receiver`` gets the flow now. It does not get updates that another subscriber parked."""
        self.receiver = receiver
        self.letters = for_receiver(self.known, receiver)

    def expect_answer(self) -> asyncio.Future[bool]:
        """A parked update was sent again. The future is true when it is acknowledged, false when its epoch ends."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def answer(self, *, acked: bool) -> None:
        """The parked update that was sent again was processed, or its epoch ended."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(acked)
