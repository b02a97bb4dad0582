"""Applies the archive's changes to one table: Spark's executors read, fold and write; the driver gets only counts.

Copy on write: a file of the table is written anew if one of its rows may have changed. Such rows become updates before
those of the archive, and the fold of snapshots (:mod:`spark_replay.tables.history`) computes their new state. The other
rows of the file are copied as they are.

New files are divided by ranges of the key and sorted by it, so each file has neighbouring keys. A reader with a filter
on the key skips most files, and updates of neighbouring rows write few files anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import fs

from spark_replay import frames
from spark_replay.archive.store import ArchiveStore
from spark_replay.export.columns import base_schema
from spark_replay.export.files import WRITTEN, AsUpdates, FileRows, KeyRows, TableFileWriter, new_files
from spark_replay.export.port import NewTableFile, TableFile, table_shape
from spark_replay.frames import ShardFiles
from spark_replay.selected import TYPES, ColumnCondition, Wanted
from spark_replay.spark.portions import portions
from spark_replay.spark.ranges import TASK_ROWS, by_range, quoted
from spark_replay.tables.columns import TableColumn, arrow_type
from spark_replay.tables.history import version_rows
from spark_replay.tables.rows import NEEDED, Decoding, needed
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import ENDING
from wormhole.model.schema import Column, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ChangedRows", "Work", "run"]

_TASK_BYTES: Final = 128 << 20
_SMALL_BYTES: Final = 16 << 20
_MOST_SMALL: Final = 16
"""If a table has more small files, the next commit that writes rows merges them."""
_BROADCAST_KEYS: Final = 1_000_000


@dataclass(frozen=True)
class Work:
    """``ranges``: the ranges of the archive. ``schemas``: the schemas of their rows, oldest first. ``files``: the files
    of the table. ``before`` and ``columns``: its present and its new columns. ``start``: rows of a snapshot before the
    ranges, in the archive's form. ``inspect``: whether the ranges may have changes that end many rows. ``rewrites``:
    every row of the table is read and written. ``filesystem``, ``folder`` and ``shape``: where and how new files are
    written.
    """

    store: ArchiveStore
    table: str
    ranges: tuple[ShardFiles, ...]
    schemas: tuple[Schema, ...]
    key: tuple[Column, ...]
    before: tuple[TableColumn, ...]
    columns: tuple[TableColumn, ...]
    files: tuple[TableFile, ...]
    filesystem: fs.FileSystem
    folder: str
    shape: pa.Schema
    inspect: bool = True
    rewrites: bool = False
    start: Callable[[SparkSession], DataFrame] | None = field(default=None, compare=False)
    start_rows: int = 0

    @property
    def changes(self) -> int:
        """About how many rows the start and the ranges have."""
        return self.start_rows + sum(entry.tables.get(self.table, 0) for one in self.ranges for entry in one.files)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The files that a commit has to add and to remove."""

    added: tuple[NewTableFile, ...]
    removed: tuple[TableFile, ...]


def run(spark: SparkSession, work: Work) -> ChangedRows:
    """Write the new files.

    Raises :class:`~wormhole.model.errors.ArchiveError`, and :class:`~wormhole.model.errors.UsageError` for a value that
    a column's type cannot represent.
    """
    with frames.reading():
        return _Job(spark, work).run()


class _Job:
    def __init__(self, spark: SparkSession, work: Work) -> None:
        import pyspark.sql.functions as f

        self._spark = spark
        self._work = work
        wanted = Wanted((ColumnCondition("table", "in", (work.table,)),))
        archived = frames.read(spark, work.store, work.ranges, wanted=wanted, current=True)
        self._changes = archived
        if work.start is not None:
            self._changes = work.start(spark).where(f.col("table") == work.table).unionByName(archived)
        self._base = base_schema(work.table, work.key, work.before)

    def run(self) -> ChangedRows:
        work = self._work
        if not work.files:
            return ChangedRows(self._written(self._folded(self._changes), work.changes), ())
        touched = self._touched().persist()
        try:
            everything = work.rewrites or self._ends_many()
            removed = work.files if everything else self._hit(touched)
            if not removed:
                return ChangedRows(self._written(self._folded(self._changes), work.changes), ())
            rows = self._rows(removed, [column.shown for column in work.before])
            base = rows.join(touched, self._same(rows, touched), "left" if everything else "inner")
            folded = self._folded(self._updates(base).unionByName(self._changes))
            if not everything:
                kept = rows.join(touched, self._same(rows, touched), "left_anti").drop("_file")
                folded = folded.unionByName(kept)
            return ChangedRows(
                self._written(folded, work.changes + sum(file.rows for file in removed), removed), removed
            )
        finally:
            touched.unpersist()

    def _touched(self) -> DataFrame:
        """Shard and key of every row that may change, and the key's values: ``_k0``, ``_k1``, ..."""
        import pyspark.sql.functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = self._changes.where(~f.col("op").isin(*ENDING))
        keys = rows.select("shard", "key")
        keys = keys.union(rows.where("old_key is not null").select("shard", "old_key")).distinct()
        kinds = {column.name: column.type for column in self._work.before}
        own = [kinds[column.name] for column in self._work.key]
        shape = pa.schema(
            [
                pa.field("_of", pa.string()),
                pa.field("_key", pa.binary()),
                *(pa.field(f"_k{i}", arrow_type(kind)) for i, kind in enumerate(own)),
            ]
        )
        return keys.mapInArrow(KeyRows(tuple(own), shape), from_arrow_schema(shape))

    def _same(self, rows: DataFrame, touched: DataFrame) -> SparkColumn:
        shown = {column.name: column.shown for column in self._work.before}
        same = rows["_shard"] == touched["_of"]
        for i, column in enumerate(self._work.key):
            same &= rows[quoted(shown[column.name])] == touched[f"_k{i}"]
        return same

    def _ends_many(self) -> bool:
        import pyspark.sql.functions as f

        return self._work.inspect and bool(self._changes.where(f.col("op").isin(*ENDING)).take(1))

    def _hit(self, touched: DataFrame) -> tuple[TableFile, ...]:
        """The files with rows that may change, and the small files if there are too many."""
        import pyspark.sql.functions as f

        work = self._work
        shown = {column.name: column.shown for column in work.before}
        keys = self._rows(work.files, [shown[column.name] for column in work.key])
        few = touched.count() <= _BROADCAST_KEYS
        found = keys.join(f.broadcast(touched) if few else touched, self._same(keys, touched), "left_semi")
        hit = {row[0] for row in found.select("_file").distinct().collect()}
        small = [i for i, file in enumerate(work.files) if file.size < _SMALL_BYTES]
        if len(small) > _MOST_SMALL:
            hit.update(small)
        return tuple(work.files[i] for i in sorted(hit))

    def _rows(self, files: Sequence[TableFile], names: Sequence[str]) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        shape = table_shape(self._work.before)
        wanted = {*names, "_shard"} if len(names) < len(self._work.before) else {*shape.names}
        shape = pa.schema([*(one for one in shape if one.name in wanted), pa.field("_file", pa.int32())])
        numbered = portions(self._spark, [(number, file.path) for number, file in enumerate(files)])
        return numbered.mapInArrow(FileRows(self._work.filesystem, shape), from_arrow_schema(shape))

    def _updates(self, base: DataFrame) -> DataFrame:
        return base.mapInArrow(AsUpdates(self._base, self._work.before), f"{TYPES}, shard string")

    def _folded(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        work = self._work
        schemas = (self._base, *work.schemas)
        whole = {one.shard for one in work.ranges}
        current = version_rows(attach(rows, schemas), whole, current=True, inspect=work.inspect)
        plan = Decoding(schemas, work.columns)
        given = needed(current.select("table", *NEEDED), work.table)
        table = given.mapInArrow(plan.batches, from_arrow_schema(plan.shape()))
        return table.select(*map(quoted, table_shape(work.columns).names))

    def _written(self, rows: DataFrame, count: int, removed: Sequence[TableFile] = ()) -> tuple[NewTableFile, ...]:
        """Write rows to new files. ``count``: about how many rows. ``removed``: the files from which they come."""
        shown = {column.name: column.shown for column in self._work.columns}
        key = [shown[column.name] for column in self._work.key]
        tasks = max(math.ceil(count / TASK_ROWS), math.ceil(sum(file.size for file in removed) / _TASK_BYTES), 1)
        with by_range(rows, key, tasks) as ordered:
            return self._files(ordered)

    def _files(self, rows: DataFrame) -> tuple[NewTableFile, ...]:
        writer = TableFileWriter(self._work.filesystem, self._work.folder, self._work.shape)
        return new_files(rows.mapInArrow(writer, WRITTEN).collect())
