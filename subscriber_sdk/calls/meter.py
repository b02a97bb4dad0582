"""Measures the callbacks of one flow, at no cost per update while they are fast. Takes the time as an argument.

Callbacks run in pieces: a slice of a batch, or a whole batch. A piece costs one reading of the clock. Each callback is
timed by itself only if the callbacks of the piece before were slow, so that more readings are negligible. A slow
callback among fast ones is not timed by itself. Then the time of its piece is reported, with the table if the piece
had only one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wormhole.wire.update import Update

__all__ = ["Meter"]

_WORTH_S: Final = 20e-6  # callbacks whose average time is longer are timed by themselves
_SLOW_S: Final = 0.01  # a piece whose callbacks were not timed is reported if it takes longer


class Meter:
    """Times are seconds of one clock. ``busy``: the time spent in callbacks; ``failures``: the number of failed
    attempts."""

    __slots__ = ("_at", "_began", "_lap", "_side", "_slowest", "_table", "busy", "failures", "timing")

    def __init__(self) -> None:
        self.busy = 0.0
        self.failures = 0
        self.timing = True
        """Whether :meth:`lap` should be called before each callback."""
        self._began: float | None = None
        self._at: Update | None = None
        self._lap = 0.0
        self._slowest = 0.0
        self._table = ""
        self._side: dict[Update, float] = {}  # callbacks that run side by side, oldest first

    def begin(self, now: float) -> None:
        """A piece begins."""
        self._began = now
        self._at = None

    def lap(self, update: Update, now: float) -> None:
        """The callback of ``update`` begins. The callback before it in the piece has returned."""
        if self._at is not None:
            self._ended(self._at, now - self._lap)
        self._at, self._lap = update, now

    def end(self, updates: Sequence[Update], now: float) -> None:
        """The piece of ``updates`` has ended."""
        if self._began is None:
            return
        took = now - self._began
        self.busy += took
        self._began = None
        if self._at is not None:
            self._ended(self._at, now - self._lap)
            self._at = None
        elif took > max(_SLOW_S, self._slowest):
            tables = {update.table for update in updates}
            self._slowest, self._table = took, tables.pop() if len(tables) == 1 else ""
        self.timing = took > _WORTH_S * len(updates)

    def enter(self, update: Update, now: float) -> None:
        """The callback of ``update`` begins, while callbacks of other updates may run."""
        self._side[update] = now

    def leave(self, update: Update, now: float) -> None:
        """The callback of ``update`` has ended, with or without success."""
        took = now - self._side.pop(update)
        self.busy += took
        self._ended(update, took)

    def running(self, current: object, now: float) -> tuple[Update | None, float]:
        """The update whose callback runs now, and its seconds so far. ``current``: the flow's present item. If several
        callbacks run side by side, this is the oldest."""
        for update, began in self._side.items():
            return update, now - began
        if self._began is None or not isinstance(current, Update):
            return None, 0.0
        return current, now - (self._began if self._at is None else self._lap)

    def spent(self, now: float) -> float:
        """Seconds in callbacks, including those that run now."""
        pending = sum(now - began for began in self._side.values())
        return self.busy + pending + (0.0 if self._began is None else now - self._began)

    def slowest(self) -> tuple[str, float]:
        """Table and seconds of the longest callback since :meth:`slowest` was called last."""
        slowest = self._table, self._slowest
        self._table, self._slowest = "", 0.0
        return slowest

    def _ended(self, update: Update, took: float) -> None:
        if took > self._slowest:
            self._slowest, self._table = took, update.table
