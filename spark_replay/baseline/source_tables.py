"""The datastore's tables for the driver of a baseline: their lists, their ranges and their present columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from spark_replay.baseline.scan import TableLog
from spark_replay.baseline.work import KeyRange
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable, TableSource

__all__ = ["SourceTables"]

_T = TypeVar("_T")

_ONE: Final = ChunkLimits(rows=1)
_STEP: Final = 100_000  # rows that the datastore counts at a time
_PAUSE_S: Final = 0.5


class SourceTables(ExitStack):
    """A context manager. ``patience_s``: seconds for which the datastore may refuse to answer. Methods raise
    :class:`~wormhole.model.errors.WormholeError`, as documented in the port.
    """

    def __init__(self, logs: Mapping[str, TableLog], patience_s: float) -> None:
        super().__init__()
        self._logs = logs
        self._patience_s = patience_s
        self._opened: dict[str, TableSource] = {}

    def listed(self, log: str, named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """All tables, as they are now. ``named``: see the port."""
        return self._patiently(lambda: self._of(log).tables(lambda _: True, named))

    def first(self, log: str, table: str, not_before: Datamarker) -> Chunk:
        """A chunk with the first row of a table, if there is one. It shows the table's present columns."""
        return self._patiently(lambda: self._of(log).chunk(table, None, None, _ONE, not_before))

    def reached(self, log: str, high: str, marker: Datamarker) -> bool:
        """See the port."""
        return self._of(log).reached(high, marker)

    def ranges(self, log: str, table: ScannedTable, rows: int, round_: int) -> Iterator[KeyRange]:
        """The table in ranges of about ``rows`` rows each.

        If the datastore knows that the table has fewer rows, they are not counted.
        """
        begin = None
        known = table.rows
        while known is None or known > rows:
            end = self._behind(log, table.name, begin, rows)
            if end is None:
                break
            yield KeyRange(0, round_, log, table.name, begin, end, rows=rows)
            begin = end
        yield KeyRange(0, round_, log, table.name, begin, None, rows=rows if known is None else min(rows, known))

    def _behind(self, log: str, table: str, after: bytes | None, rows: int) -> bytes | None:
        while rows > 0:
            step, at = min(rows, _STEP), after
            after = self._patiently(lambda: self._of(log).skip(table, at, step))  # noqa: B023 - called at once
            if after is None:
                return None
            rows -= step
        return after

    def _of(self, log: str) -> TableSource:
        found = self._opened.get(log)
        if found is None:
            folder = self.enter_context(TemporaryDirectory())
            found = self._opened[log] = self._logs[log].open(Path(folder))
            self.callback(found.close)
        return found

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return ask()
            except SourceUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)
