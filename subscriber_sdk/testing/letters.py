"""Keeps the parked updates (dead letters) of a flow under test in memory, by the rules of a publisher."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wormhole.model.errors import UsageError
from wormhole.ports.dead_letters import (
    DeadLetter,
    Parcel,
    UpdatePlace,
    bound_together,
    in_order,
    open_parcel,
    parked_rows,
    place_from_message,
    row_text,
)
from wormhole.wire.v1 import push_pb2

__all__ = ["KitLetters"]


class KitLetters:
    """The parked updates, and the rules for parking and removing them. ``limit``: beyond it the flow halts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[str, tuple[DeadLetter, Parcel]] = {}
        self._halves: dict[str, bytes] = {}

    def all(self) -> tuple[DeadLetter, ...]:
        """The parked updates, in the order of the log."""
        return in_order(letter for letter, _ in self._kept.values())

    def park(self, frame: push_pb2.Park) -> str | None:
        """Keep the update of a frame. Returns why the update is refused; ``""`` if it is kept, ``None`` if a further
        frame of the same update follows."""
        body = self._halves.pop(frame.update_id, b"") + frame.body
        if frame.more:
            self._halves[frame.update_id] = body
            return None
        parcel = Parcel(frame.schema, body)
        update = open_parcel(parcel)
        assert update.id == frame.update_id
        if frame.update_id not in self._kept and len(self._kept) >= self._limit:
            return f"{len(self._kept)} updates are parked, which is dead_letters of the test"
        letter = DeadLetter(
            update.id,
            place_from_message(frame.place),
            update.rows(),
            update.op.value,
            0.0,
            frame.error,
            False,
            len(parcel.schema) + len(parcel.body),
        )
        self._kept[update.id] = (letter, parcel)
        return ""

    def rows(self) -> Iterable[tuple[bytes, UpdatePlace]]:
        """The rows that an assignment lists as parked: all except the rows that are delivered again."""
        chosen = bound_together(self.all(), [letter.id for letter in self.all() if letter.retrying])
        self._mark(chosen)
        return parked_rows(self.all()).items()

    def next(self) -> tuple[DeadLetter, Parcel] | None:
        """The first update that has to be delivered again."""
        return next((self._kept[letter.id] for letter in self.all() if letter.retrying), None)

    def delivered(self, letter: DeadLetter) -> None:
        """Remove an update that was delivered again, unless it was parked again."""
        if self._kept[letter.id][0] == letter:
            del self._kept[letter.id]

    def retry(self, key: str) -> None:
        """Mark the updates of a row for delivery, with all updates that have to be delivered with them."""
        self._mark(bound_together(self.all(), self._chosen(key)))

    def discard(self, key: str) -> None:
        """Discard the updates of a row."""
        for id_ in self._chosen(key):
            del self._kept[id_]

    def _mark(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            letter, parcel = self._kept[id_]
            self._kept[id_] = (replace(letter, retrying=True), parcel)

    def _chosen(self, key: str) -> list[str]:
        chosen = [letter.id for letter in self.all() if not key or key in map(row_text, letter.rows)]
        if not chosen:
            rows = sorted({row_text(row) for letter in self.all() for row in letter.rows})
            raise UsageError(
                f"no update of {key or 'any row'} is parked", hint=f"parked are: {', '.join(rows) or 'none'}"
            )
        return chosen
