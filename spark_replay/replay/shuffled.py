"""Computes the last change of each key in a range that is too large for one task.

::

    split   a task for each slice of the range: combines changes by key, and makes a piece for each part of the keys
    fold    a task for each part: folds its pieces, in the order of the slices, to one row per key, in pieces by place
    push    one task: pushes the pieces of one slice's places after those of the previous slice

A slice is the rows between two places, about 128 MiB. So the place of a row's last change determines its piece.

Tasks exchange a few large pieces of bytes, not rows, because Spark's own sorts and shuffles of rows take four times as
long. Spark's shuffle keeps all pieces on disk, and delivers them to the push one after the other.

No task has more than a slice, a part or a piece in memory, each about 128 MiB, because at most three rows of one key
are kept. Above 256 parts the parts become larger, not more, because the shuffles have a block for each part of each
slice. The task that folds such a part divides it again, on its own disk.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import joined
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from spark_replay.combine import combined, keyless
from spark_replay.frames import ShardFiles
from spark_replay.replay import keyed
from spark_replay.replay.keyed import COLUMNS, by_place, last_changes
from spark_replay.replay.latest import refuse_others
from spark_replay.replay.packed import Folding, Packed, Pushing
from spark_replay.replay.shelf import SHELF_BYTES, Shelf
from spark_replay.spark.executors import checked
from wormhole.model.errors import ArchiveError, ArchiveUnavailable
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["Piece", "Slice", "fold", "in_order", "shuffled", "slices", "split"]

_WINDOW_BYTES: Final = 64 << 20
"""Bytes of rows that a push sorts at once."""
_ROUNDS: Final = 1 << 32
_MOST_SHARES: Final = 256  # each share is a file while a part is divided

_PIECE: Final = "piece"

Piece = tuple[int, Packed]
"""The unit that tasks exchange: packed rows, with a number that orders them."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows that one task reads: those of ``files`` with ``after < place <= until``. ``number``: the number of the
    slice in the range, by place."""

    shard: str
    files: tuple[FileEntry, ...]
    after: bytes
    until: bytes
    number: int


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

    ``schemas``: the schemas of the rows. Raises :class:`~wormhole.model.errors.ArchiveError` for a large file that is
    missing or damaged.
    """
    cut = [pickle.dumps(one) for one in slices(store, chosen)]
    read: Any = context.parallelize(cut, len(cut)).flatMap(checked(partial(_split, store, schemas, parts)))
    folding = checked(partial(fold, schemas, by_values, parts=parts))
    pieces: Any = read.partitionBy(parts, int).mapPartitions(folding).partitionBy(len(cut), int)
    # One task reads all partitions in order, one after the other, each from the shuffle's own storage.
    in_one: RDD[Piece] = pieces.coalesce(1)
    return in_one


def slices(store: ArchiveStore, chosen: ShardFiles) -> list[Slice]:
    """The range in slices of about one part's bytes: several files, or some row groups of a large file."""
    first, last = chosen.bounds
    found: list[Slice] = []
    for files in keyed.slices(chosen.files):
        bounds = [first, *_cuts(store, chosen.shard, files[0], len(files)), last]
        for after, until in pairwise(bounds):
            if max(after, first) < min(until, last):
                found.append(Slice(chosen.shard, files, max(after, first), min(until, last), len(found)))
    return found


def _cuts(store: ArchiveStore, shard: str, entry: FileEntry, files: int) -> list[bytes]:
    """The places at which a large file is divided, at ends of row groups; none if it shares a slice with others."""
    shares = -(-entry.raw // keyed.PART_BYTES)
    if files > 1 or shares < 2:
        return []
    with open_file(store, shard, entry) as file:
        ends = [last for _, last in file.spans()]
    return sorted({ends[at - 1] for at in (len(ends) * share // shares for share in range(1, shares)) if at})


def _rows(store: ArchiveStore, one: Slice) -> Iterator[pa.RecordBatch]:
    for entry in one.files:
        try:
            with open_file(store, one.shard, entry) as file:
                yield from file.batches(one.after, one.until, COLUMNS)
        except ArchiveError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise ArchiveUnavailable(
                f"{store.data_path(one.shard, entry.name)} is not there any more",
                shard=one.shard,
                hint="`wormholectl archive verify` shows every file that is missing; restore it from a backup",
            ) from error


def _split(
    store: ArchiveStore, schemas: Mapping[int, Schema], parts: int, one: bytes
) -> Iterator[tuple[int, tuple[int, Packed]]]:
    return split(store, schemas, parts, pickle.loads(one))  # noqa: S301 - what the driver wrote a few lines above


def split(
    store: ArchiveStore, schemas: Mapping[int, Schema], parts: int, one: Slice
) -> Iterator[tuple[int, tuple[int, Packed]]]:
    """The rows of a slice, as tuples: the part, the number that orders its pieces, and the piece."""
    form, held = Folding(schemas), _Held(schemas)
    number = one.number * _ROUNDS
    for batch in _rows(store, one):
        refuse_others(batch)
        held.add(batch)
        if held.least > keyed.PART_BYTES // 4:  # many keys: little would be gained
            yield from _divided(form, held.come_to(), parts, number)
            number += 1
    if held.size:
        yield from _divided(form, held.come_to(), parts, number)


class _Held:
    """Rows ascending by place. They are combined by key whenever they have twice the size of the last result."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._schemas = schemas
        self._batches: list[pa.RecordBatch] = []
        self.least = 0
        """Bytes of the rows when they were combined last."""
        self.size = 0
        """Bytes of all rows now."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the next rows."""
        self._batches.append(rows)
        self.size += rows.nbytes
        if self.size > max(keyed.PART_BYTES // 2, 2 * self.least):
            rows = self.come_to()
            self._batches = [rows]
            self.least = self.size = rows.nbytes

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all rows."""
        rows, self._batches = self._batches, []
        self.least = self.size = 0
        return rows

    def come_to(self) -> pa.RecordBatch:
        """Remove all rows and return them combined."""
        return combined(joined(self.take()), self._schemas)


def _divided(
    form: Folding, rows: pa.RecordBatch, parts: int, number: int, before: int = 1
) -> Iterator[tuple[int, Piece]]:
    """Divide rows into parts. ``before``: the number of parts of an earlier division, of which these rows are one."""
    of = _parts(rows, parts, before)
    rows = rows.take(pc.array_sort_indices(of))  # rows of one part stay in the order of their places
    begin = 0
    for one_part in sorted(pc.value_counts(of).to_pylist(), key=itemgetter("values")):
        yield one_part["values"], (number, form.pack(rows.slice(begin, one_part["counts"])))
        begin += one_part["counts"]


def _parts(rows: pa.RecordBatch, parts: int, before: int = 1) -> pa.Array:
    """The number of each row's part, by its key alone, or by its place if it has no key."""
    alone = keyless(rows.column("key"))
    deciding = rows.column("key")
    if pc.any(alone).as_py():
        deciding = pc.if_else(alone, rows.column("place").cast(pa.binary()), deciding)
    keys = deciding.dictionary_encode()
    numbers = [zlib.crc32(key) // before % parts for key in keys.dictionary.to_pylist()]
    return pa.array(numbers, pa.int64()).take(keys.indices)


def fold(
    schemas: Mapping[int, Schema], by_values: bool, given: Iterable[tuple[int, Piece]], parts: int = 1
) -> Iterator[Piece]:
    """Fold one part's rows, which come in no order, to one row per key. ``parts``: how many parts the range has."""
    shelf = Shelf()
    for _, (number, (sources, message)) in given:
        shelf.put(number, sources, message)
    shares = min(_MOST_SHARES, -(-shelf.bytes // keyed.PART_BYTES))
    if shares <= 1:
        yield from _folded(schemas, by_values, shelf)
        return
    pushing, found = Pushing(), Shelf()
    for share in _shared(schemas, shelf, shares, parts):
        for number, (sources, message) in _folded(schemas, by_values, share):
            found.put(number, sources, message)
    for number, same in groupby(found, key=itemgetter(0)):
        rows = joined([pushing.unpack(sources, message) for _, sources, message in same])
        for batch in by_place(rows):
            yield number, pushing.pack(batch)


def _shared(schemas: Mapping[int, Schema], shelf: Shelf, shares: int, parts: int) -> list[Shelf]:
    """Divide a part that is too large to be folded at once into ``shares`` by key, one piece at a time."""
    form = Folding(schemas)
    found = [Shelf(SHELF_BYTES // shares) for _ in range(shares)]
    for number, sources, message in shelf:
        for share, (_, (own, packed)) in _divided(form, form.unpack(sources, message), shares, number, parts):
            found[share].put(number, own, packed)
    return found


def _folded(schemas: Mapping[int, Schema], by_values: bool, shelf: Shelf) -> Iterator[Piece]:
    form, held = Folding(schemas), _Held(schemas)
    for number, sources, message in shelf:
        rows = form.unpack(sources, message)
        held.add(rows.append_column(_PIECE, pa.repeat(pa.scalar(number // _ROUNDS, pa.int32()), rows.num_rows)))
    if not held.size:
        return
    pushing = Pushing()
    for batch in last_changes(held.take(), schemas, by_values):
        begin = 0
        for run in pc.run_end_encode(batch.column(_PIECE)).values.to_pylist():
            count = pc.sum(pc.equal(batch.column(_PIECE), run)).as_py()
            yield run, pushing.pack(batch.slice(begin, count))
            begin += count


def in_order(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows of ordered pieces, ascending by place. The rows of one slice are kept in memory, or on disk if they are
    too many."""
    form = Pushing()
    before = -1
    for number, same in groupby(pieces, key=itemgetter(0)):
        if number < before:
            raise RuntimeError(f"piece {number} came after piece {before}")
        before = number
        shelf = Shelf()
        for _, (sources, message) in same:
            shelf.put(0, sources, message)
        yield from _windows([form.unpack(sources, message) for _, sources, message in shelf])


def _windows(runs: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs to rows sorted by place, in windows that are sorted in memory."""
    size = sum(run.nbytes for run in runs)
    if size <= _WINDOW_BYTES:
        yield from by_place(joined(runs))
        return
    begins = [0] * len(runs)
    for bound in _bounds(runs, -(-size // _WINDOW_BYTES)):
        ends = [bisect_right(range(run.num_rows), bound, key=partial(_place, run)) for run in runs]
        cut = [run.slice(begin, end - begin) for run, begin, end in zip(runs, begins, ends, strict=True) if begin < end]
        begins = ends
        if cut:
            yield from by_place(joined(cut))


def _place(run: pa.RecordBatch, at: int) -> bytes:
    place: bytes = run.column("place")[at].as_py()
    return place


def _bounds(runs: list[pa.RecordBatch], count: int) -> list[bytes]:
    """The last place of each of ``count`` windows. Every window has about the same number of bytes."""
    places = pa.concat_arrays([run.column("place") for run in runs])
    sizes = pa.concat_arrays([pc.binary_length(run.column("update")) for run in runs]).cast(pa.int64())
    order = pc.array_sort_indices(places)
    reached = pc.cumulative_sum(sizes.take(order))
    total = reached[-1].as_py()
    wanted = (total * one // count for one in range(1, count))
    ends = [bisect_left(range(len(reached)), one, key=lambda at: reached[at].as_py()) for one in wanted]
    # The last bound is the last row. Otherwise rows after the last byte of the updates would be left out.
    return [places[order[end].as_py()].as_py() for end in (*ends, len(order) - 1)]
