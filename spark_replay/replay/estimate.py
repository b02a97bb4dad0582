"""How much a replay would be: what a dry run shows, and what decides between every change and the last of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, read, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Estimate", "estimate"]

_ERROR: Final = 0.02
"""Relative error of the number of keys. Memory goes up with its square: this takes some ten kilobytes per shard and task."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one shard's range. ``updates``: exactly. ``bytes``: of the archive's files, compressed, as far as they belong to the range.
    ``keys``: different rows that change, give or take two percent."""

    shard: str
    updates: int
    bytes: int
    keys: int

    @property
    def distinct(self) -> float:
        """Keys per update, at most 1; 1 where there are no updates."""
        return min(1.0, self.keys / self.updates) if self.updates else 1.0


def estimate(spark: SparkSession, store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[str, Estimate]:
    """Look through places, tables and keys of these shards; the updates themselves are not read. By shard, in the order given.

    Raises :class:`~wormhole.errors.ArchiveError` for a file that cannot be read.
    """
    import pyspark.sql.functions as f

    rows = read(spark, store, chosen).groupBy("shard")
    keys = f.approx_count_distinct(f.xxhash64("table", "key"), _ERROR)
    with reading():
        counted = {one["shard"]: one for one in rows.agg(f.count("*").alias("updates"), keys.alias("keys")).collect()}
    return {one.shard: _of(one, counted) for one in chosen}


def _of(one: ShardFiles, counted: dict[str, Any]) -> Estimate:
    found = counted.get(one.shard)
    if found is None:
        return Estimate(one.shard, 0, 0, 0)
    rows = sum(entry.rows for entry in one.files)
    size = sum(entry.bytes for entry in one.files)
    return Estimate(one.shard, found["updates"], size * found["updates"] // rows, min(found["keys"], found["updates"]))
