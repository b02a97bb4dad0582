"""Limits the memory that publishers make this process use in addition to updates within their credit. Pure.

There are two budgets, each for all streams together. One is for data that stays as long as a stream or a flow: flows,
schemas, markers, lists, texts. Its bytes are estimates from measurements. The other is for batches that are larger than
their flow's credit. Streams do not wait for memory: if data does not fit, the publisher that uses the most loses its
stream. So a publisher that exceeds a budget cannot use the memory of another publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from wormhole.model.errors import ProtocolError

__all__ = ["FLOW_BYTES", "STREAM_BYTES", "Account", "Accounts", "Budget", "large_budget", "state_budget"]

FLOW_BYTES: Final = 12 << 10
"""The memory of a flow, without names and lists. Measured: 10.2 KB."""
STREAM_BYTES: Final = 128 << 10
"""The memory of a stream: gRPC's buffers, two tasks, and outgoing frames."""


def state_budget(max_state: int) -> Budget:
    """The budget for data that stays as long as a stream or flow: flows, schemas, markers, lists, texts."""
    hint = "have more instances share the shards, or raise the subscriber's option `max_state`"
    return Budget(max_state, "flows, schemas, datamarkers and lists", hint)


def large_budget(max_body: int) -> Budget:
    """The budget for batches larger than their flow's credit: enough for two batches of the largest size."""
    hint = "nothing: it is sent again when there is room; the subscriber's option `max_update` sets how much"
    return Budget(2 * max_body, "batches over their credit", hint)


class Budget:
    """A limit on the memory of all streams together. ``limit``: bytes of all accounts.

    ``what``: the name of the counted data; ``hint``: what an operator can do when the limit is reached.
    """

    def __init__(self, limit: int, what: str, hint: str) -> None:
        self.limit = limit
        self._what = what
        self._hint = hint
        self.used = 0
        """Bytes that all accounts hold together."""
        self._accounts: set[Account] = set()

    def __repr__(self) -> str:
        return f"<Budget: {self.used} of {self.limit} bytes in {len(self._accounts)} accounts>"

    def open(self, owner: str, end: Callable[[ProtocolError], None] = lambda error: None) -> Account:
        """Open the account of a stream. ``owner``: the pushing publisher, the same for all its streams if they can be
        recognised; ``end``: ends the stream when another stream needs its memory.
        """
        account = Account(self, owner, end)
        self._accounts.add(account)
        return account

    def make_room(self, account: Account, what: str) -> None:
        """End streams of the publisher that uses the most until all data fits.

        Raises :class:`~wormhole.model.errors.ProtocolError` if this publisher is the owner of ``account``.
        """
        while self.used > self.limit:
            held: dict[str, int] = {}
            for one in self._accounts:
                held[one.owner] = held.get(one.owner, 0) + one.held
            largest = max(held, key=lambda owner: held[owner])
            error = ProtocolError(
                f"{what} does not fit: this publisher makes the subscriber keep {held[largest]} bytes of "
                f"{self._what}, and all "
                f"publishers together may take {self.limit}",
                hint=self._hint,
            )
            if largest == account.owner:
                raise error
            victim = max((one for one in self._accounts if one.owner == largest), key=lambda one: one.held)
            victim.close()
            victim.end(error)

    def forget(self, account: Account) -> None:
        """Remove the account of a stream that is over."""
        self._accounts.discard(account)
        self.used -= account.held


class Account:
    """The memory that one stream makes this process use. A closed account holds 0 bytes, and ignores releases."""

    __slots__ = ("_budget", "end", "held", "owner")

    def __init__(self, budget: Budget, owner: str, end: Callable[[ProtocolError], None]) -> None:
        self._budget: Budget | None = budget
        self.owner = owner
        self.end = end
        self.held = 0
        """Bytes."""

    def charge(self, size: int, what: str) -> None:
        """Count ``size`` more bytes, for ``what``.

        Raises :class:`~wormhole.model.errors.ProtocolError` if this publisher has to stop.
        """
        budget = self._budget
        if budget is not None:
            self.held += size
            budget.used += size
            try:
                budget.make_room(self, what)
            except ProtocolError:
                self.release(size)
                raise

    def release(self, size: int) -> None:
        """Count ``size`` bytes less."""
        if self._budget is not None:
            self.held -= size
            self._budget.used -= size

    def close(self) -> None:
        """The stream is over; idempotent."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.forget(self)
            self.held = 0


class Accounts(NamedTuple):
    """The accounts of one stream in the two budgets."""

    state: Account
    large: Account

    def close(self) -> None:
        """The stream is over; idempotent."""
        self.state.close()
        self.large.close()
