"""How much a replay would be: what a dry run shows, and what decides between every change and the last of each key."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay.keyed import rows_of, slices
from spark_replay.replay.latest import keyless
from wormhole.model.errors import ArchiveError, WormholeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Estimate", "Sketch", "estimate", "is_small"]

_KEPT: Final = 4096
"""Hashes that a sketch keeps: of more keys than that their number is known to about one in the root of it, 1.6 percent.
"""
_HASHES: Final = 1 << 64
_HERE_BYTES: Final = 512 << 20  # of rows: starting Spark takes the processor as long


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one shard's range. ``updates``: exactly. ``bytes``: of the archive's files, compressed, as far as they belong
    to the range. ``keys``: different rows that change, give or take two percent; each change of a table without a key
    counts as one.
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
    """How many different things were added, in memory that does not grow with them: the smallest of their hashes lie
    the closer together the more there are.
    """

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self.hashes: list[int] = []
        self.add(hashes)

    def add(self, hashes: Iterable[int]) -> None:
        """Hashes of 64 bits, repeats among them."""
        self.hashes = heapq.nsmallest(_KEPT, {*self.hashes, *hashes})

    @property
    def count(self) -> int:
        """Exact up to :data:`_KEPT`."""
        found = len(self.hashes)
        return found if found < _KEPT else round((_KEPT - 1) * _HASHES / self.hashes[-1])


def is_small(chosen: Sequence[ShardFiles]) -> bool:
    """Whether one process looks through them before Spark would have started."""
    return sum(entry.raw for one in chosen for entry in one.files) <= _HERE_BYTES


def estimate(spark: SparkSession | None, store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[str, Estimate]:
    """Look through places, tables and keys of these shards; the updates themselves are not read. By shard, in the order
    given.

    ``spark`` ``None``: in this process. Raises :class:`~wormhole.model.errors.ArchiveError` for a file that cannot be
    read.
    """
    looked = [replace(one, files=files) for one in chosen for files in slices(one.files)]
    updates = {one.shard: 0 for one in chosen}
    keys = {one.shard: Sketch() for one in chosen}
    alone = {one.shard: 0 for one in chosen}
    look = partial(_look, store)
    tasks = None if spark is None or not looked else spark.sparkContext.parallelize(looked, len(looked))
    for one in map(look, looked) if tasks is None else tasks.map(look).collect():
        if one.problem:
            raise ArchiveError(one.problem, shard=one.shard, hint=one.hint or None)
        updates[one.shard] += one.updates
        keys[one.shard].add(one.hashes)
        alone[one.shard] += one.keyless
    return {one.shard: _of(one, updates[one.shard], keys[one.shard].count + alone[one.shard]) for one in chosen}


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a task found. ``keyless``: how many of the updates are of tables without a key; ``hashes``: of the keys of
    the others."""

    shard: str
    updates: int = 0
    keyless: int = 0
    hashes: Sequence[int] = ()
    problem: str = ""
    hint: str = ""


def _look(store: ArchiveStore, one: ShardFiles) -> _Looked:
    updates, alone, sketch = 0, 0, Sketch()
    try:
        for batch in rows_of(store, one, ("table", "key")):
            updates += batch.num_rows
            alone += pc.sum(keyless(batch.column("key"))).as_py()
            sketch.add(_hashes(batch))
    except WormholeError as error:  # Spark would report a stack trace
        return _Looked(one.shard, problem=error.message, hint=error.hint or "")
    return _Looked(one.shard, updates, alone, sketch.hashes)


def _hashes(batch: pa.RecordBatch) -> Iterator[int]:
    tables = batch.column("table")
    for number, table in enumerate(tables.dictionary.to_pylist()):
        salt = blake2b(table.encode(), digest_size=16).digest()
        keys = pc.filter(batch.column("key"), pc.equal(tables.indices, number))
        for key in pc.unique(keys).to_pylist():
            if key:
                yield int.from_bytes(blake2b(key, digest_size=8, salt=salt).digest())


def _of(one: ShardFiles, updates: int, keys: int) -> Estimate:
    rows = sum(entry.rows for entry in one.files)
    size = sum(entry.bytes for entry in one.files)
    return Estimate(one.shard, updates, size * updates // max(1, rows), min(keys, updates))
