"""Distances of positions from the end of their log, and their places on the page's axis. Pure.

A publisher reports exact distances of its flows' datamarkers, but not the sizes of log files. From a datamarker's
distance the beginning of its file is known, so all distances in that file are exact. Distances in other files, where
caravans often are, are estimated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wormhole.model.position import LogPosition

__all__ = ["Distances", "Scale"]

_LEAST_SPAN: Final = 1 << 20
_LEAST_UNIT: Final = 64 << 10
_DEPTH: Final = 4096
_MARKS: Final = tuple(1 << power for power in range(10, 61, 5))  # 1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB ...


class Distances:
    """Distances in bytes from positions to ``end``, the end of the log. ``known``: the reported distances."""

    __slots__ = ("_begins", "_end", "_files")

    def __init__(self, end: LogPosition, known: Iterable[tuple[LogPosition, int]]) -> None:
        self._end = end
        begins = {
            place.file: behind + place.offset
            for place, behind in known
            if place.incarnation == end.incarnation and place.file < end.file
        }
        begins[end.file] = end.offset
        self._files = sorted(begins)
        self._begins = [begins[file] for file in self._files]

    def behind(self, place: LogPosition) -> int | None:
        """Bytes from ``place`` to the end, at least 0.

        ``None`` for another history of the log, or a file older than every known one.
        """
        if place.incarnation != self._end.incarnation:
            return None
        if place.file >= self._end.file:
            return max(0, self._end.offset - place.offset) if place.file == self._end.file else 0
        index = bisect_left(self._files, place.file)
        if self._files[index] == place.file:
            return max(0, self._begins[index] - place.offset)
        if index == 0:
            return None
        before, first, last = self._files[index - 1], self._begins[index - 1], self._begins[index]
        size = (first - last) / (self._files[index] - before)
        begin = first - size * (place.file - before)
        # An estimate is limited by the next file's beginning, so that a later position is never farther from the end.
        return int(max(begin - size, begin - place.offset))


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis of ``span`` bytes: 0 is its left end, 1 the end of the log. It is logarithmic because one
    caravan may be gigabytes behind while others are within a buffer's length of the end.
    """

    span: int

    @classmethod
    def reaching(cls, behind: int) -> Scale:
        """The smallest of a few fixed scales that contains ``behind``. With an exact scale, movement would not show."""
        span = _LEAST_SPAN
        while span < behind:
            span *= 4
        return cls(span)

    def at(self, behind: float) -> float:
        """The place on the axis of a position that is ``behind`` bytes before the end."""
        unit = max(_LEAST_UNIT, self.span / _DEPTH)
        return max(0.0, 1.0 - math.log1p(max(0.0, behind) / unit) / math.log1p(self.span / unit))

    def marks(self) -> list[int]:
        """Distances for the ticks of the axis, without ticks near its ends."""
        return [mark for mark in _MARKS if 0.06 < self.at(mark) < 0.94]
