"""Lets a chunk in memory enter the log, at the end of the lead's buffer.

First the chunk is brought forward: the changes in the window are applied to its rows. The lead must not add a segment
between the last such step and the entry of the chunk, because the rows would lack the changes of that segment. The step
runs in a thread while the lead continues to read, so it is tried a few times. Then the lead waits for the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from caravan.scan.bring_forward import BroughtForward
from caravan.scan.window import Runs, ScanWindow
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import ChunkRange, Run, Segment
from wormhole.wire.runs import run_of

__all__ = ["EnteringChunk"]

_NOWHERE: Final = LogPosition(0, 0, 0)


class EnteringChunk:
    """One chunk before its entry.

    ``range``: its keys, before some are left out. ``source``, ``number``: the parts of its updates' ids.
    :meth:`catch_up` is called in a thread, every other method on the event loop, and never two at once.
    """

    def __init__(
        self,
        range_: ChunkRange,
        rows: Iterable[tuple[str, bytes, bytes]],
        reached: Callable[[Datamarker], bool],
        source: str,
        number: int,
    ) -> None:
        self.range = range_
        self.reached = False
        self._forward = BroughtForward(range_.table, range_.schema, rows)
        self._has_reached = reached
        self._source = source
        self._number = number
        self._pieces = 0
        self._segments = -1
        self._runs: dict[str, Run] | None = None
        self._built_after = -1

    @property
    def spoiled(self) -> str:
        """The reason if the chunk cannot enter; empty: it can."""
        return self._forward.spoiled

    def unseen(self, window: ScanWindow) -> tuple[list[Runs], int, int]:
        """The pieces of the window that :meth:`catch_up` has to apply, with its ``count`` and ``segments``."""
        return window.pieces[self._pieces :], len(window.pieces), window.segments

    def catch_up(self, pieces: Iterable[Runs], count: int, segments: int, marker: Datamarker) -> None:
        """Apply the changes of the window up to ``marker``, which is the lead's."""
        for shard, run in chain.from_iterable(pieces):
            self._forward.apply(shard, run)
        self._pieces, self._segments = count, segments
        self.reached = self.reached or self._has_reached(marker)
        if self.reached and not self.spoiled and self._built_after != self._forward.changes:
            self._runs = _build(self.range.schema, self._forward.rows(), self._source, self._number)
            self._built_after = self._forward.changes

    def segment(self, window: ScanWindow, place: LogPosition, marker: Datamarker) -> Segment | None:
        """The segment that enters at ``place``, where ``window`` ends; ``None``: the chunk cannot enter yet."""
        if not self.reached or self._runs is None or self._segments != window.segments:
            return None
        for run in self._runs.values():
            run.tx_file[0], run.tx_offset[0] = place.file, place.offset
        return Segment(place, place, self._runs, marker, 0, chunk=self._complete())

    def _complete(self) -> ChunkRange:
        range_ = self.range
        left_out, again = self._forward.left_out(), self._forward.again()
        if range_.alone:
            keys = frozenset(range_.alone)
            left_out, again = tuple(filter(keys.__contains__, left_out)), tuple(filter(keys.__contains__, again))
        shards = {**range_.shards, **self._forward.shards()}
        return replace(range_, left_out=left_out, again=again, shards=shards)


def _build(schema: Schema, rows: Mapping[str, Collection[bytes]], source: str, number: int) -> dict[str, Run]:
    """The rows as one transaction over all shards. Its place is set when it enters."""
    runs, first = {}, 0
    for shard, updates in rows.items():
        runs[shard] = run_of(updates, schema, source, number, _NOWHERE, first)
        first += len(updates)
    return runs
