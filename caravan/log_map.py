"""Computes the bytes of log between two places. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from wormhole.model.position import LogPosition

__all__ = ["LogMap"]


class LogMap:
    """The files of a log and their sizes, as the source last reported them. Without files, only distances within one
    file are known.

    ``files``: (number, bytes) in ascending order.
    """

    __slots__ = ("_before", "_numbers")

    def __init__(self, files: Sequence[tuple[int, int]] = ()) -> None:
        self._numbers = [number for number, _ in files]
        self._before = [0]
        for _, size in files:
            self._before.append(self._before[-1] + size)

    def between(self, start: LogPosition, end: LogPosition) -> int | None:
        """Bytes of log from ``start`` to ``end``, negative if ``end`` is before ``start``; ``None`` when unknown."""
        if start.incarnation != end.incarnation:
            return None
        if start.file == end.file:
            return end.offset - start.offset
        if end < start:
            back = self.between(end, start)
            return None if back is None else -back
        first, last = bisect_left(self._numbers, start.file), bisect_left(self._numbers, end.file)
        if last == len(self._numbers) or self._numbers[first] != start.file or self._numbers[last] != end.file:
            return None
        return self._before[last] - self._before[first] - start.offset + end.offset
