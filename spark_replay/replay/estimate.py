"""Estimates the extent of a replay, for a dry run and for the choice between every change and the last of each key."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.store import ArchiveStore
from spark_replay.combine import keyless
from spark_replay.frames import ShardFiles
from spark_replay.replay.keyed import rows_of, slices
from wormhole.model.errors import ArchiveError, WormholeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Estimate", "Sketch", "estimate", "is_small"]

_KEPT: Final = 4096
"""The most hashes that a sketch keeps. A larger number of keys has a relative error of about one by the square root of
this constant: 1.6 percent.
"""
_HASHES: Final = 1 << 64
_HERE_BYTES: Final = 512 << 20  # one process reads this many bytes of rows in the time in which Spark starts


@dataclass(frozen=True, slots=True)
class Estimate:
    """The extent of a replay of one shard's range.

    ``updates``: the exact number. ``bytes``: compressed bytes of the archive's files, as far as they belong to the
    range. ``keys``: different rows that change, give or take two percent; each change of a table without a key counts
    as one.
    """

    shard: str
    updates: int
    bytes: int
    keys: int

    @property
    def distinct(self) -> float:
        """Keys per update, at most 1; 1 where there are no updates."""
        return min(1.0, self.keys / self.updates) if self.updates else 1.0


class Sketch:
    """Counts distinct values in bounded memory.

    A sketch keeps the smallest hashes of the values. The more values exist, the closer together these hashes are.
    """

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self.hashes: list[int] = []
        self.add(hashes)

    def add(self, hashes: Iterable[int]) -> None:
        """Add hashes of 64 bits, which may repeat."""
        self.hashes = heapq.nsmallest(_KEPT, {*self.hashes, *hashes})

    def added(self, hashes: Iterable[int] = ()) -> array[int]:
        """Add ``hashes``. Returns the hashes that are kept, 8 bytes each."""
        self.add(hashes)
        return array("Q", self.hashes)

    @property
    def count(self) -> int:
        """The number of distinct values, exact up to :data:`_KEPT`."""
        found = len(self.hashes)
        return found if found < _KEPT else round((_KEPT - 1) * _HASHES / self.hashes[-1])


def is_small(chosen: Sequence[ShardFiles]) -> bool:
    """Whether one process reads these ranges in less time than Spark needs to start."""
    return sum(entry.raw for one in chosen for entry in one.files) <= _HERE_BYTES


def estimate(spark: SparkSession | None, store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[str, Estimate]:
    """The estimates by shard, in the order of ``chosen``. Reads places, tables and keys, not the updates themselves.

    ``spark``: ``None`` reads in this process. Raises :class:`~wormhole.model.errors.ArchiveError` for a file that
    cannot be read.
    """
    looked = [replace(one, files=files) for one in chosen for files in slices(one.files)]
    look = partial(_look, store)
    found: dict[str, _Looked] = {}
    if spark is None or not looked:
        for one in map(look, looked):
            found[one.shard] = found[one.shard].plus(one) if one.shard in found else one
    else:
        tasks = spark.sparkContext.parallelize(looked, len(looked)).map(look).keyBy(_shard)
        # Executors combine the tasks' results, so the driver does not receive a sketch for each 128 MiB of the archive.
        found = tasks.reduceByKey(_Looked.plus, spark.sparkContext.defaultParallelism).collectAsMap()
    for one in found.values():
        if one.problem:
            raise ArchiveError(one.problem, shard=one.shard, hint=one.hint or None)
    return {one.shard: _of(one, found.get(one.shard, _Looked(one.shard))) for one in chosen}


@dataclass(frozen=True, slots=True)
class _Looked:
    """The result of one or several tasks of one shard. ``keyless``: the number of updates of tables without a key.
    ``hashes``: the key hashes of all other updates, as a :class:`Sketch` keeps them."""

    shard: str
    updates: int = 0
    keyless: int = 0
    hashes: Sequence[int] = ()
    problem: str = ""
    hint: str = ""

    def plus(self, other: _Looked) -> _Looked:
        """This result combined with that of another task for the same shard."""
        if self.problem or other.problem:
            return self if self.problem else other
        hashes = Sketch(self.hashes).added(other.hashes)
        return _Looked(self.shard, self.updates + other.updates, self.keyless + other.keyless, hashes)


def _shard(one: _Looked) -> str:
    return one.shard


def _look(store: ArchiveStore, one: ShardFiles) -> _Looked:
    updates, alone, sketch = 0, 0, Sketch()
    try:
        for batch in rows_of(store, one, ("table", "key")):
            updates += batch.num_rows
            alone += pc.sum(keyless(batch.column("key"))).as_py()
            sketch.add(_hashes(batch))
    except WormholeError as error:  # Spark would report a stack trace
        return _Looked(one.shard, problem=error.message, hint=error.hint or "")
    return _Looked(one.shard, updates, alone, sketch.added())


def _hashes(batch: pa.RecordBatch) -> Iterator[int]:
    tables = batch.column("table")
    for number, table in enumerate(tables.dictionary.to_pylist()):
        salt = blake2b(table.encode(), digest_size=16).digest()
        keys = pc.filter(batch.column("key"), pc.equal(tables.indices, number))
        for key in pc.unique(keys).to_pylist():
            if key:
                yield int.from_bytes(blake2b(key, digest_size=8, salt=salt).digest())


def _of(one: ShardFiles, found: _Looked) -> Estimate:
    updates, keys = found.updates, Sketch(found.hashes).count + found.keyless
    rows = sum(entry.rows for entry in one.files)
    size = sum(entry.bytes for entry in one.files)
    return Estimate(one.shard, updates, size * updates // max(1, rows), min(keys, updates))
