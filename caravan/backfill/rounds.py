"""Which rows are read next. Pure.

One table at a time, and in it upwards from where the last range ended, then from its beginning again: flows that join
in the middle share what is left of the round and get the rest in the next one. Of a table's keys to read again come
those that some flow can take now, when no range of it is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from caravan.backfill.boundaries import START, Boundaries
from caravan.backfill.progress import FlowBackfill, without
from wormhole.model.segment import ChunkRange

__all__ = ["Taker", "Work", "next_work"]

_MOST_KEYS = 500
_MOST_KEY_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Work:
    """The range of ``table`` between two neighbours in its list, or, if given, the keys ``alone``."""

    table: str
    begin: int = START
    end: int = START
    alone: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Taker:
    """A flow that can take rows now. ``coming``: chunks that lie before it, so that nothing of them is read again."""

    backfill: FlowBackfill
    coming: tuple[ChunkRange, ...] = ()

    def ranges(self, table: str) -> Sequence[tuple[int, int]]:
        """Of ``table``, the ranges of numbers that it needs beside what is coming."""
        ranges = self.backfill.ranges(table)
        for chunk in self.coming:
            if chunk.table == table and not chunk.alone:
                ranges = without(ranges, chunk.begin, chunk.end)
        return ranges

    def again(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` that it needs beside what is coming."""
        coming = {key for chunk in self.coming if chunk.table == table for key in chunk.alone}
        return (key for key in self.backfill.again(table) if key not in coming)


def next_work(takers: Sequence[Taker], lists: Mapping[str, Boundaries], table: str, number: int) -> Work | None:
    """What to read for ``takers``, after the range of ``table`` that ended at ``number``; ``None``: nothing."""
    names = sorted({name for taker in takers for name in taker.backfill.tables if name in lists})
    behind = [name for name in names if name >= table]
    for name in (*behind, *names[: len(names) - len(behind)]):
        found = _next_in(takers, name, lists[name], number if name == table else START)
        if found is not None:
            return found
    return None


def _next_in(takers: Sequence[Taker], table: str, boundaries: Boundaries, number: int) -> Work | None:
    number = boundaries.widened(number, number)[0]  # it may be of another list, which this one replaced
    ranges = [one for taker in takers for one in taker.ranges(table)]
    above = [max(begin, number) for begin, end in ranges if end > number]
    if above or ranges:
        begin = min(above) if above else min(begin for begin, _ in ranges)
        return Work(table, begin, boundaries.after(begin))
    alone = _some(key for taker in takers for key in taker.again(table))
    return Work(table, alone=alone) if alone else None


def _some(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    found: dict[bytes, None] = {}
    size = 0
    for key in keys:
        found[key] = None
        size += len(key)
        if len(found) >= _MOST_KEYS or size >= _MOST_KEY_BYTES:
            break
    return tuple(found)
