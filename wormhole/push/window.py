"""Limits the bytes of a flow that are in flight to the credit that its subscriber gave. Nothing else counts them."""

from __future__ import annotations

from collections import deque
from typing import Final

from wormhole.model.errors import ProtocolError

__all__ = ["MOST_BATCHES", "MOST_CREDIT", "Window"]

MOST_CREDIT: Final = 1 << 30
"""Limit in bytes; a larger credit is reduced to it."""
MOST_BATCHES: Final = 16_384
"""Limit of the batches in flight, however small they are: each is remembered until it is returned."""


class Window:
    """Bytes of batch bodies that were sent and whose callbacks have not returned.

    A body is admitted while it fits the credit. A body that is larger than the whole credit is admitted when nothing
    else is in flight, because otherwise it could never be sent. With :data:`MOST_BATCHES` in flight no further body is
    admitted.
    """

    __slots__ = ("_sent", "credit", "in_flight", "next_number", "returned_to")

    def __init__(self, credit: int) -> None:
        self.credit = min(credit, MOST_CREDIT)
        self.in_flight = 0
        self.next_number = 1
        self.returned_to = 0
        """The last batch whose callbacks, and those of all earlier batches, have returned."""
        self._sent: deque[tuple[int, int]] = deque()

    def admits(self, size: int) -> bool:
        """Whether a body of ``size`` bytes may be sent now."""
        if len(self._sent) >= MOST_BATCHES:
            return False
        return self.in_flight + size <= self.credit or not self.in_flight

    @property
    def half_free(self) -> bool:
        """Whether at least half of the credit and half of :data:`MOST_BATCHES` is free."""
        return self.in_flight <= self.credit // 2 and len(self._sent) <= MOST_BATCHES // 2

    def sent(self, size: int) -> int:
        """Record that a body is sent. Returns its batch number."""
        number = self.next_number
        self.next_number += 1
        self._sent.append((number, size))
        self.in_flight += size
        return number

    def returned(self, number: int) -> None:
        """Record that every callback up to batch ``number`` has returned.

        Raises :class:`~wormhole.model.errors.ProtocolError`.
        """
        if number >= self.next_number:
            raise ProtocolError(f"progress: batch {number} was never sent; the last one is {self.next_number - 1}")
        self.returned_to = max(self.returned_to, number)
        while self._sent and self._sent[0][0] <= number:
            self.in_flight -= self._sent.popleft()[1]
