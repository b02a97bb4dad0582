"""Chooses the rows that are read next. Pure.

One table is read at a time, upwards from where the last range ended. Flows that join in the middle share the rest of
the round, and get the other rows in the next round, after the other tables. A table that is truncated
often is needed again each time, and the other tables must not wait for it.

When no range of a table is left, its keys to read again follow, as far as some flow can take them now. After these come
keys that changed in lost log. Keys that subscribers named come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from caravan.backfill.boundaries import START, Boundaries
from caravan.backfill.progress import FlowBackfill, without
from wormhole.model.schema import Column
from wormhole.model.segment import ChunkRange

__all__ = ["NextRows", "Taker", "next_work"]

_MOST_KEYS = 500
_MOST_KEY_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class NextRows:
    """The range of ``table`` between two neighbours in its list, or, if given, the keys ``alone``.

    ``named``: subscribers named the keys, which may be no keys of the table. ``columns``: the keys are from lost log,
    in which the table's key had these columns.
    """

    table: str
    begin: int = START
    end: int = START
    alone: tuple[bytes, ...] = ()
    named: bool = False
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Taker:
    """A flow that can take rows now. ``coming``: chunks that are before it in the buffer, so that no part of them is
    read again.
    """

    backfill: FlowBackfill
    coming: tuple[ChunkRange, ...] = ()

    def ranges(self, table: str) -> Sequence[tuple[int, int]]:
        """The ranges of numbers that the flow needs of ``table``, without the coming chunks."""
        ranges = self.backfill.ranges(table)
        for chunk in self.coming:
            if chunk.table == table and not chunk.alone:
                ranges = without(ranges, chunk.begin, chunk.end)
        return ranges

    def again(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` that the flow needs to read again, without the coming chunks."""
        coming = self._alone(table)
        return (key for key in self.backfill.again(table) if key not in coming)

    def lost(self, table: str, columns: tuple[Column, ...]) -> Iterable[bytes]:
        """Keys of ``table`` that changed in lost log, without the coming chunks, if they consist of ``columns``."""
        known, keys = self.backfill.lost(table)
        coming = self._alone(table)
        return (key for key in keys if key not in coming) if known == columns else ()

    def named(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` that its subscriber named, without the coming chunks."""
        coming = self._alone(table)
        return (key for key in self.backfill.named(table) if key not in coming)

    def _alone(self, table: str) -> set[bytes]:
        return {key for chunk in self.coming if chunk.table == table for key in chunk.alone}


def next_work(
    takers: Sequence[Taker], lists: Mapping[str, Boundaries], table: str, number: int, *, failed: bool = False
) -> NextRows | None:
    """The next rows to read for ``takers``, after the range of ``table`` that ended at ``number``; ``None``: nothing.

    ``failed``: reading that range failed, so other tables come first.
    """
    last = None
    names = sorted({name for taker in takers for name in taker.backfill.tables if name in lists})
    behind = [name for name in names if name >= table]
    for name in (*behind, *names[: len(names) - len(behind)]):
        known = lists[name]
        # The number may be of another list, which this one replaced.
        begin = known.widened(number, number)[0] if name == table else START
        found = _next_in(takers, name, known, begin)
        if found is not None and name == table and (failed or (found.begin < begin and not found.alone)):
            last = found
        elif found is not None:
            return found
    return last


def _next_in(takers: Sequence[Taker], table: str, boundaries: Boundaries, number: int) -> NextRows | None:
    ranges = [one for taker in takers for one in taker.ranges(table)]
    above = [max(begin, number) for begin, end in ranges if end > number]
    if above or ranges:
        begin = min(above) if above else min(begin for begin, _ in ranges)
        return NextRows(table, begin, boundaries.after(begin))
    if alone := _some(key for taker in takers for key in taker.again(table)):
        return NextRows(table, alone=alone)
    for columns in dict.fromkeys(taker.backfill.lost(table)[0] for taker in takers):
        if lost := _some(key for taker in takers for key in taker.lost(table, columns)):
            return NextRows(table, alone=lost, columns=columns)
    named = _some(key for taker in takers for key in taker.named(table))
    return NextRows(table, alone=named, named=True) if named else None


def _some(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    found: dict[bytes, None] = {}
    size = 0
    for key in keys:
        found[key] = None
        size += len(key)
        if len(found) >= _MOST_KEYS or size >= _MOST_KEY_BYTES:
            break
    return tuple(found)
