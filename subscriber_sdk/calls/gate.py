"""Decides for each update whether the callback is called, or the update is skipped or parked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from wormhole.model.values import Value
from wormhole.ports.dead_letters import ParkedRows, UpdatePlace, place_of
from wormhole.wire.rows import values_of
from wormhole.wire.update import Update

__all__ = ["Gate", "Verdict"]


class Verdict(Enum):
    """What to do with an update."""

    CALL = "call"
    SKIP = "skip"
    """An operator asked to skip it."""
    PARK = "park"
    """An earlier update of its row is parked."""


class Gate:
    """Which updates of one epoch are delivered, skipped or parked.

    ``skip``: ids of updates to skip; ``parked``: rows with their first parked position; ``parks``:
    whether an update whose retries are exhausted is parked.
    """

    __slots__ = ("_parked", "_skip", "_stored", "parks")

    def __init__(
        self, skip: Iterable[str] = (), parked: Iterable[tuple[bytes, UpdatePlace]] = (), *, parks: bool = False
    ) -> None:
        self.parks = parks
        self._skip = frozenset(skip)
        self._parked = ParkedRows(parked)
        self._stored: set[str] = set()

    @property
    def idle(self) -> bool:
        """Whether every update goes to its callback, so that no update has to be checked."""
        return not self._skip and not self._parked

    def verdict(self, update: Update) -> Verdict:
        """What to do with the update.

        Raises :class:`~wormhole.model.errors.DecodeError` for a row that cannot be read.
        """
        if self._skip and update.id in self._skip:
            return Verdict.SKIP
        if update.table in self._parked.tables and self._parked.hold(update.rows(), place_of(update)):
            return Verdict.PARK
        return Verdict.CALL

    def held_keys(self, table: str) -> frozenset[tuple[Value, ...]] | None:
        """The keys of the table whose updates are parked; ``None`` if every update of the table is parked."""
        if table not in self._parked.tables:
            return frozenset()
        rows = self._parked.keys_of(table)
        return None if any(not row.values for row in rows) else frozenset(values_of(row.values) for row in rows)

    def stored(self, update: Update) -> bool:
        """Whether the update was already parked in this epoch. A rollback delivers parked updates again."""
        return update.id in self._stored

    def parked(self, update: Update) -> None:
        """Note that the publisher has stored the update durably. Later updates of its rows have to be parked."""
        self._stored.add(update.id)
        self._parked.add(update.rows(), place_of(update))
