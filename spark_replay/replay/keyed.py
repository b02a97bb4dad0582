"""Computes the last change of each key in a range whose rows fit into the memory of one task.

The rows are read as for a replay of every change, grouped by key in memory, folded, and returned in the order of their
places. The number of parts of a range is computed from the manifest. A range of one part is folded by the task that
pushes it. In a larger range each part has its own task (:mod:`spark_replay.replay.shuffled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import joined
from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.ranges import files_between, holding
from spark_replay.archive.reader import END, after, open_file, upto
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay.latest import folded
from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Schema

__all__ = [
    "COLUMNS",
    "MOST_PARTS",
    "PART_BYTES",
    "LastChanges",
    "by_place",
    "last_changes",
    "parts",
    "rows_of",
    "slices",
]

PART_BYTES: Final = 128 << 20
"""Bytes of rows that are grouped by key at once.

A task needs twice as much memory, because it holds the rows as they were read and a copy of them in one piece.
"""

MOST_PARTS: Final = 256
"""The most parts of a range, because Spark's shuffle has a block for each part of each slice. A part that is larger
than :data:`PART_BYTES` is divided again by the task that folds it."""
_BATCH_BYTES: Final = 4 << 20
COLUMNS: Final = tuple(name for name in SCHEMA.names if name != "old_key")
"""The columns that are read."""


def parts(files: Sequence[FileEntry]) -> int:
    """The number of parts, by key, in which the rows of these files are folded. 1: the task that pushes folds them."""
    return min(MOST_PARTS, max(1, -(-sum(entry.raw for entry in files) // PART_BYTES)))


def slices(files: Sequence[FileEntry]) -> list[tuple[FileEntry, ...]]:
    """The files in groups of adjacent ones, one for each task. A group has at most one part's bytes, or one file."""
    found: list[tuple[FileEntry, ...]] = []
    size = PART_BYTES
    for entry in files:
        size += entry.raw
        if size > PART_BYTES or not found:
            found.append(())
            size = entry.raw
        found[-1] = (*found[-1], entry)
    return found


@dataclass(frozen=True, slots=True)
class LastChanges:
    """:func:`last_changes` of a range of the archive, computed anew at each iteration."""

    store: ArchiveStore
    chosen: ShardFiles
    by_values: bool = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises :class:`~wormhole.model.errors.ArchiveError` for a file that is missing or damaged, and as
        :func:`~spark_replay.replay.latest.folded`.
        """
        try:
            return self._of(self.chosen)
        except ArchiveError as error:
            newest = self._newest() if isinstance(error.__cause__, FileNotFoundError) else self.chosen
            if newest == self.chosen:
                raise
            return self._of(newest)  # files were merged meanwhile

    def _of(self, chosen: ShardFiles) -> Iterator[pa.RecordBatch]:
        schemas = schemas_of(self.store, [chosen])
        return last_changes(list(rows_of(self.store, chosen)), schemas, self.by_values)

    def _newest(self) -> ShardFiles:
        begin, until = self.chosen.begin, self.chosen.until
        if begin is None or until is None:
            return self.chosen
        manifest = holding(self.store.read(self.chosen.shard), self.chosen.shard, begin, until)
        return replace(self.chosen, files=files_between(manifest, begin, until))


def rows_of(store: ArchiveStore, chosen: ShardFiles, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
    """The rows of a range, a row group at a time.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a file that is missing or damaged.
    """
    begin = after(chosen.begin) if chosen.begin is not None else b""
    until = upto(chosen.until) if chosen.until is not None else END
    for entry in chosen.files:
        with open_file(store, chosen.shard, entry) as file:
            yield from file.batches(begin, until, columns)


def last_changes(
    rows: list[pa.RecordBatch], schemas: Mapping[int, Schema], by_values: bool = False
) -> Iterator[pa.RecordBatch]:
    """One row per key of the rows of one shard, and every row without a key, ascending by place.

    The batches have a few MiB. ``rows`` is emptied, to free its memory.

    Raises as :func:`~spark_replay.replay.latest.folded`.
    """
    if rows:
        whole = joined(rows)
        rows.clear()
        found = joined(list(folded(whole, schemas, by_values=by_values)))
        del whole
        yield from by_place(found)


def by_place(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows sorted by place, a few MiB at a time."""
    return _taken(rows, pc.array_sort_indices(rows.column("place")))


def _taken(rows: pa.RecordBatch, order: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows in this order, with plain text in the columns that are compared."""
    size = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, size):
        batch = rows.take(order.slice(first, size))
        for name in {"op", "table"}.intersection(batch.schema.names):
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, name, batch.column(at).cast(pa.string()))
        yield batch
