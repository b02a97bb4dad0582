"""The last changes of a range that is small enough for one task: read as for a replay of every change, brought together by key in memory,
folded, and handed on in the order of their places.

A range that is not is folded in parts by Spark (:func:`~spark_replay.replay.latest.latest_rows`); which of the two it is, the manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import END, open_file, upto
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay.latest import folded
from wormhole.schema import Schema

__all__ = ["PART_BYTES", "LastChanges", "last_changes", "parts"]

PART_BYTES: Final = 128 << 20
"""Bytes of rows that are brought together by key at once. A task needs twice as much: the rows as they were read, then in one piece."""

_BATCH_BYTES: Final = 4 << 20
_COLUMNS: Final = tuple(name for name in SCHEMA.names if name != "old_key")


def parts(files: Sequence[FileEntry]) -> int:
    """In how many parts, by key, the rows of these files are folded. 1: by the task that pushes them."""
    return max(1, -(-sum(entry.raw for entry in files) // PART_BYTES))


@dataclass(frozen=True, slots=True)
class LastChanges:
    """:func:`last_changes` of a range of the archive, computed when it is iterated over, as often as that is."""

    store: ArchiveStore
    chosen: ShardFiles
    by_values: bool = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises :class:`~wormhole.errors.ArchiveError` for a file that is missing or damaged, and as :func:`~spark_replay.replay.latest.folded`."""
        return last_changes(_rows(self.store, self.chosen), schemas_of(self.store, [self.chosen]), self.by_values)


def _rows(store: ArchiveStore, chosen: ShardFiles) -> list[pa.RecordBatch]:
    after = upto(chosen.begin) if chosen.begin is not None else b""
    until = upto(chosen.until) if chosen.until is not None else END
    found: list[pa.RecordBatch] = []
    for entry in chosen.files:
        with open_file(store, chosen.shard, entry) as file:
            found += file.batches(after, until, _COLUMNS)
    return found


def last_changes(
    rows: list[pa.RecordBatch], schemas: Mapping[int, Schema], by_values: bool = False
) -> Iterator[pa.RecordBatch]:
    """One row per key out of the rows of one shard, both ascending by place, in batches of a few MiB. ``rows`` is emptied.

    Raises as :func:`~spark_replay.replay.latest.folded`.
    """
    if rows:
        whole = _joined(rows)
        rows.clear()
        found = _joined(list(folded(_slices(whole, _by_key(whole)), schemas, by_values=by_values)))
        del whole
        yield from _slices(found, pc.array_sort_indices(found.column("place")))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    # Each file has dictionaries of its own.
    (whole,) = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    return whole


def _by_key(rows: pa.RecordBatch) -> pa.Array:
    """The numbers of the rows, those of one key together and as they came. Numbers for keys are sorted much faster than keys are."""
    table = rows.column("table")
    keys = rows.column("key").dictionary_encode().indices.cast(pa.int64())
    return pc.array_sort_indices(pc.add(pc.multiply(keys, len(table.dictionary)), table.indices.cast(pa.int64())))


def _slices(rows: pa.RecordBatch, order: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows in this order, a few MiB at a time, with plain text for what is compared."""
    size = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, size):
        batch = rows.take(order.slice(first, size))
        for name in ("op", "table"):
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, name, batch.column(at).cast(pa.string()))
        yield batch
