"""The transactions of the piece that is being encoded, by columns. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["Transactions"]

_KEPT: Final = 1 << 16


class Transactions:
    """``count`` transactions in columns of `datastores.common.encode.piece.Piece`. The first ``ended`` have ended.

    ``passed`` counts the transactions that the log was read past, also those without updates. Their sources and numbers
    are kept beside the columns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.ended = 0
        self.passed = 0
        self._capacity = 1024
        self._columns()
        self._passed_capacity = 1024
        self._passed_columns()

    def _columns(self) -> None:
        self.sources = array("I", bytes(4 * self._capacity))
        self.numbers = array("Q", bytes(8 * self._capacity))
        self.offsets = array("Q", bytes(8 * self._capacity))
        self.times = array("q", bytes(8 * self._capacity))
        self.ends = array("I", bytes(4 * self._capacity))
        self._sources = self.sources
        self._numbers = self.numbers
        self._offsets = self.offsets
        self._times = self.times
        self._ends = self.ends

    def _passed_columns(self) -> None:
        self.passed_sources = array("I", bytes(4 * self._passed_capacity))
        self.passed_numbers = array("Q", bytes(8 * self._passed_capacity))
        self._passed_sources = self.passed_sources
        self._passed_numbers = self.passed_numbers

    def add(self, source: int, number: int, offset: int, time: int) -> None:
        """Add a transaction. It stays open unless `end` follows."""
        n = self.count
        if n == self._capacity:
            old = self.sources, self.numbers, self.offsets, self.times, self.ends
            self._capacity = 2 * n
            self._columns()
            for column, values in zip(
                (self.sources, self.numbers, self.offsets, self.times, self.ends), old, strict=True
            ):
                column[:n] = values
        self._sources[n] = source
        self._numbers[n] = number
        self._offsets[n] = offset
        self._times[n] = time
        self.count = n + 1

    def end(self, updates: int) -> None:
        """End the transaction that was added last. ``updates``: the number of the piece's updates up to its end."""
        self._ends[self.ended] = updates
        self.ended += 1

    def passes(self, source: int, number: int) -> None:
        """Note that the log was read past this transaction."""
        n = self.passed
        if n == self._passed_capacity:
            sources, numbers = self.passed_sources, self.passed_numbers
            self._passed_capacity = 2 * n
            self._passed_columns()
            self.passed_sources[:n] = sources
            self.passed_numbers[:n] = numbers
        self._passed_sources[n] = source
        self._passed_numbers[n] = number
        self.passed = n + 1

    def clear(self) -> None:
        """The columns were taken."""
        self.count = self.ended = 0
        if self._capacity > _KEPT:
            self._capacity = _KEPT
            self._columns()

    def take_passed(self) -> tuple[array[int], array[int]]:
        """The sources and the numbers of the transactions passed since the last call."""
        n = self.passed
        self.passed = 0
        return self.passed_sources[:n], self.passed_numbers[:n]
