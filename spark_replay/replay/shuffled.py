"""The last changes of a range that is too large for one task.

::

    split   a task for some files each: their rows, a piece for each part of the keys
    fold    a task for each part: one row per key, ascending by place, cut where the pieces of the range are
    push    one task: the pieces of the range one after the other, each of all parts, ascending by place

What travels between tasks are a few large pieces of bytes (Arrow's format for streams), not rows: Spark's own sorts and
shuffles of rows take more than ten times the processor time. The push holds a piece of the range, a fold one part of
its keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay.keyed import PART_BYTES, by_place, joined, last_changes, numbers, rows_of, slices
from spark_replay.replay.latest import keyless
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["fold", "in_order", "shuffled", "split"]

_PIECE_BYTES: Final = 32 << 20
"""Bytes of the range's rows in a piece, about."""
_PIECE: Final = "piece"
_MOST: Final = 4 * PART_BYTES
"""Bytes of rows that a part may come to: keys are spread evenly over the parts, and of one key's changes the first and
the last of each row group count, unless they are parts of rows.
"""

Piece = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Slice:
    """What one task reads: ``first`` is the number of its first piece, which those of the slice behind it are above."""

    chosen: ShardFiles
    first: int


def shuffled(
    context: SparkContext,
    store: ArchiveStore,
    chosen: ShardFiles,
    schemas: Mapping[int, Schema],
    parts: int,
    *,
    by_values: bool,
) -> RDD[Piece]:
    """The range's last changes as pieces in order, all in one partition, for :func:`in_order`.

    ``schemas``: that the rows refer to.
    """
    cut = [_Slice(replace(chosen, files=files), number << 32) for number, files in enumerate(slices(chosen.files))]
    rows: Any = context.parallelize(cut, len(cut)).flatMap(partial(split, store, parts))
    folding = partial(fold, schemas, by_values)
    pieces: RDD[Piece] = rows.partitionBy(parts, int).mapPartitions(folding).repartitionAndSortWithinPartitions(1, _one)
    return pieces


def _one(piece: int) -> int:
    return 0


def split(store: ArchiveStore, parts: int, one: _Slice) -> Iterator[tuple[int, Piece]]:
    """The rows of some files: the part, the number of the piece, and the piece."""
    piece, size = one.first, 0
    for number, batch in enumerate(rows_of(store, one.chosen)):
        size += batch.nbytes
        if size > _PIECE_BYTES:
            piece, size = one.first + number, batch.nbytes
        rows = _ends(batch)
        rows = rows.append_column(_PIECE, pa.array([piece] * rows.num_rows, pa.int64()))
        of = _parts(rows, parts)
        rows = rows.take(pc.array_sort_indices(of))
        begin = 0
        for one_part in sorted(pc.value_counts(of).to_pylist(), key=itemgetter("values")):
            yield one_part["values"], (one.first + number, _to_bytes(rows.slice(begin, one_part["counts"])))
            begin += one_part["counts"]


def _ends(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without what lies between the first and the last change of a key, which say what both come to where rows are
    whole.
    """
    if pc.any(batch.column("partial")).as_py():
        return batch
    at = pa.table({"key": numbers(batch), "at": pa.array(range(batch.num_rows), pa.int64())})
    ends = at.group_by("key").aggregate([("at", "min"), ("at", "max")])
    kept = pc.unique(pa.concat_arrays([*ends["at_min"].chunks, *ends["at_max"].chunks]))
    return batch if len(kept) == batch.num_rows else batch.take(kept.take(pc.array_sort_indices(kept)))


def _parts(rows: pa.RecordBatch, parts: int) -> pa.Array:
    """Of which part each row is: its key alone decides, or its place where it has none."""
    alone = keyless(rows.column("key"))
    deciding = rows.column("key")
    if pc.any(alone).as_py():
        deciding = pc.if_else(alone, rows.column("place").cast(pa.binary()), deciding)
    keys = deciding.dictionary_encode()
    return pa.array([zlib.crc32(key) % parts for key in keys.dictionary.to_pylist()], pa.int64()).take(keys.indices)


def fold(schemas: Mapping[int, Schema], by_values: bool, given: Iterable[tuple[int, Piece]]) -> Iterator[Piece]:
    """The rows of one part, in no order, to one row per key, in pieces with the number of theirs.

    Raises :class:`~wormhole.model.errors.ReplayError` for a part that is too large to be brought together.
    """
    found: list[Piece] = []
    size = 0
    for _, piece in given:
        found.append(piece)
        size += len(piece[1])
        if size > _MOST:
            raise ReplayError(
                f"more than {_MOST >> 20} MiB are parts of rows of too few keys to be brought together",
                hint="replay with --mode log",
            )
    found.sort(key=itemgetter(0))
    rows = [batch for _, data in found for batch in _from_bytes(data)]
    found.clear()
    for batch in last_changes(rows, schemas, by_values):
        begin = 0
        for run in pc.run_end_encode(batch.column(_PIECE)).values.to_pylist():
            count = pc.sum(pc.equal(batch.column(_PIECE), run)).as_py()
            yield run, _to_bytes(batch.slice(begin, count))
            begin += count


def in_order(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows of pieces that come in order, ascending by place."""
    for _, same in groupby(pieces, key=itemgetter(0)):
        yield from by_place(joined([batch for _, data in same for batch in _from_bytes(data)]))


def _to_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as stream:
        return list(stream)
