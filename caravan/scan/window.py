"""The log that the lead read since a chunk was requested: the changes that its rows may lack.

It is recorded on the event loop at each segment, so that nothing is missed, and read elsewhere.
"""

from __future__ import annotations

from typing import TypeAlias

from caravan.buffer import begun_in, undone
from wormhole.model.position import Datamarker
from wormhole.model.segment import Run, Segment

__all__ = ["Runs", "ScanWindow"]

_RUN_BYTES = 200  # an entry of the list takes this, beside a small run


Runs: TypeAlias = tuple[tuple[str, Run], ...]
"""The runs of one segment that hold changes of the table, by shard."""


class ScanWindow:
    """The recorded changes beside one chunk.

    ``begin``: the chunk shows its table at or after this place. ``budget``: bytes of changes that are kept. ``pieces``:
    the recorded runs, from ``segments`` segments. ``spoiled``: why the chunk cannot be brought forward; empty while it
    can. ``over_budget``: whether the budget is the reason.
    """

    def __init__(self, table: str, begin: Datamarker, budget: int) -> None:
        self.table = table
        self.begin = begin
        self.budget = budget
        self.spoiled = ""
        self.over_budget = False
        self.pieces: list[Runs] = []
        self.segments = 0
        self._size = 0
        self._unfinished: list[Segment] = []
        self._place = begin.order

    def note(self, segment: Segment) -> None:
        """Record the next ``segment`` that the lead read."""
        if self.spoiled:
            return
        self.segments += 1
        self.spoiled = self._fault(segment)
        if self.spoiled:
            self.pieces.clear()
            return
        runs = tuple((shard, run) for shard, run in segment.runs.items() if self._touches(run))
        if runs:
            self.pieces.append(runs)
            self._size += sum(_RUN_BYTES + len(run.blob) for _, run in runs)
            if self._size > self.budget:
                self.over_budget = True
                self.spoiled = f"more than {self.budget} bytes of changes came while the rows were read"
                self.pieces.clear()
        self._place = segment.end
        if segment.marker is None:
            self._unfinished.append(segment)
        else:
            self._unfinished.clear()

    def _touches(self, run: Run) -> bool:
        return any(schema.table == self.table for schema in run.schemas)

    def _fault(self, segment: Segment) -> str:
        if segment.gap is not None:
            return "log is missing while the rows were read"
        if self.table in segment.replaced:
            return "the rows of the table changed without a trace in the log while they were read"
        if segment.end.incarnation != self.begin.order.incarnation:
            return "the log went on in another history while the rows were read"
        for shard, broken in segment.broken.items():
            if not broken.tables or self.table in broken.tables:
                return f"a change of shard {shard} cannot be decoded"
        for piece in self._unfinished:
            for shard, run in piece.runs.items():
                begun = begun_in(run)
                if begun is not None and undone(segment, shard, self._place, begun):
                    return "a transaction was rolled back of which a part was read"
        return ""
