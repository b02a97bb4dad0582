"""Writes a snapshot, from any source of rows: first updates, then tables, and last its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_replay.archive.newest_snapshot import NewestSnapshot, note_snapshot
from spark_replay.archive.storage import Storage
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, reading
from spark_replay.selected import PLAIN
from spark_replay.spark.ranges import TASK_ROWS, by_range
from spark_replay.tables.about import SnapshotAbout, SnapshotShard, SnapshotTable, about_to_json
from spark_replay.tables.folder import Folder, TableWritten, Written, table_folder
from spark_replay.tables.history import version_rows
from spark_replay.tables.rolling import lost_after
from spark_replay.tables.rows import Decoding, decoding, without
from spark_replay.tables.selection import TableOptions, TableSelection
from spark_replay.tables.updates import (
    UPDATES,
    TableRows,
    UpdatesFile,
    WrittenFile,
    file_rows,
    read_updates,
    write_rows,
)
from wormhole.model.errors import ArchiveError, ArchiveUnavailable
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HeldRows", "SnapshotPlan", "write_tables", "write_updates"]


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows as updates. ``files``: all files. ``tables``: the rows by table. ``parts``: by table, the files with its
    rows.
    """

    files: tuple[UpdatesFile, ...] = ()
    tables: Mapping[str, TableRows] = field(default_factory=dict)
    parts: Mapping[str, Sequence[UpdatesFile]] = field(default_factory=dict)

    @classmethod
    def of(cls, written: Sequence[WrittenFile]) -> HeldRows:
        """The rows of these files."""
        tables: dict[str, TableRows] = {}
        parts: dict[str, list[UpdatesFile]] = {}
        for one in written:
            for table, some in one.tables.items():
                tables[table] = tables.get(table, TableRows()) + some
                parts.setdefault(table, []).append(one.file)
        return cls(tuple(one.file for one in written), tables, parts)


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The input and the tables of a snapshot. ``names``: tables to write. ``left_out`` and ``others``: as in
    :class:`~spark_replay.tables.about.SnapshotAbout`. ``begins``: by shard, where the archive of its rows began, if
    that is not the beginning of the range.
    """

    selection: TableSelection
    names: tuple[str, ...]
    left_out: Mapping[str, str]
    others: tuple[str, ...]
    begins: Mapping[str, str] = field(default_factory=dict)

    def newest(self, table: str) -> tuple[Schema, ...]:
        """The newest schemas of a table; none if no row of it is in the range."""
        return tuple(one.schema for _, one in sorted(self.selection.newest.get(table, {}).items()))

    def schemas_of(self, table: str, rows: TableRows) -> tuple[Schema, ...]:
        """The schemas of these rows and the newest ones. If there are neither, all schemas that the table ever had."""
        own = [schema for schema in self.selection.schemas if schema.table == table]
        ids = rows.schemas | {schema.id for schema in self.newest(table)}
        return tuple(schema for schema in own if schema.id in ids or not ids)

    def about(self, store: ArchiveStore, held: HeldRows) -> SnapshotAbout:
        """The description of the snapshot."""
        tables = {}
        schemas: list[Schema] = []
        for table in self.names:
            rows = held.tables.get(table, TableRows())
            newest = self.selection.newest.get(table, {})
            tables[table] = SnapshotTable(table_folder(table), rows.rows, rows.lack, newest)
            schemas += self.schemas_of(table, rows)
        return SnapshotAbout(
            store.dataset,
            store.copy,
            {one.shard: self._shard(one) for one in self.selection.shards},
            tables,
            self.left_out,
            self.others,
            tuple(schemas),
            held.files,
        )

    def _shard(self, one: ShardFiles) -> SnapshotShard:
        assert one.begin is not None
        assert one.until is not None
        manifest = self.selection.manifests[one.shard]
        lacks = ""
        if one.shard not in self.selection.whole:
            begins = f"the archive of {one.shard} begins at {manifest.begin.order}, not at the shard's first row"
            lacks = lost_after(manifest, one) or begins
        begin = self.begins.get(one.shard, str(one.begin.order))
        return SnapshotShard(begin, one.until, manifest.log, lacks)


def write_updates(spark: SparkSession, folder: Folder, source: DataFrame, plan: SnapshotPlan) -> HeldRows:
    """Fold ``source`` (archive rows of the tables to write) to the rows at its end, and write these as updates."""
    with reading():  # the fold may run a job now, to collect changes that end many rows
        current = version_rows(source, plan.selection.whole, current=True, inspect=plan.selection.needs_inspection)
    ordered = current.select(*PLAIN.names).sortWithinPartitions("table", "shard", "place")
    return HeldRows.of(folder.write(ordered, UPDATES, PLAIN))


@dataclass(frozen=True)
class _Tables:
    """Writes the updates of one table as a file with the table's columns. Runs on the executors."""

    storage: Storage

    def __call__(self, part: _Part) -> WrittenFile:
        rows = (batch for file in part.files for batch in file_rows(self.storage, file, table=part.table))
        return write_rows(self.storage, part.folder, part.shape, part.columns.batches(rows))


@dataclass(frozen=True, slots=True)
class _Part:
    table: str
    folder: str
    columns: Decoding
    shape: pa.Schema
    rows: int
    files: tuple[UpdatesFile, ...]


def _by_range(spark: SparkSession, folder: Folder, part: _Part) -> list[WrittenFile]:
    """Write the files of a table that is too large for one file."""
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = read_updates(spark, folder.storage, part.files, table=part.table)
    columns = rows.mapInArrow(part.columns.batches, from_arrow_schema(part.columns.shape()))
    with by_range(columns, part.columns.order, -(-part.rows // TASK_ROWS)) as ordered:
        return folder.write(ordered, part.folder, part.shape)


def write_tables(
    spark: SparkSession,
    store: ArchiveStore,
    folder: Folder,
    plan: SnapshotPlan,
    held: HeldRows,
    readings: Mapping[str, TableOptions],
    now: datetime,
) -> Written:
    """Write the tables of the updates, then the description, which makes the snapshot valid. Note it in the archive."""
    about = plan.about(store, held)
    shapes: dict[str, pa.Schema] = {}
    parts: list[_Part] = []
    large: list[_Part] = []
    for table, one in about.tables.items():
        how = readings.get(table, TableOptions())
        columns = decoding(
            plan.schemas_of(table, held.tables.get(table, TableRows())),
            table,
            types=how.types,
            fields=how.fields,
            value_format=how.value_format,
            only=plan.newest(table),
        )
        shape = shapes[table] = without(columns.shape(), "_op", "_index", "_old_key", "_key_end")
        if files := held.parts.get(table, ()):
            some = large if one.rows > TASK_ROWS else parts
            some.append(_Part(table, one.folder, columns, shape, one.rows, tuple(files)))
    written: dict[str, list[WrittenFile]] = {}
    with reading():
        if parts:
            made = spark.sparkContext.parallelize(parts, len(parts)).map(_Tables(folder.storage)).collect()
            written = {part.table: [file] for part, file in zip(parts, made, strict=True)}
        for part in large:
            written[part.table] = _by_range(spark, folder, part)
    for table, one in about.tables.items():
        folder.settle(one.folder, shapes[table], written.get(table, ()))
    created = now.astimezone(UTC).isoformat(timespec="seconds")
    folder.finish(about_to_json(about, created))
    return Written(
        folder.to,
        {table: TableWritten(one.folder, one.rows, about.problems_of(table)) for table, one in about.tables.items()},
        {shard: str(one.marker.order) for shard, one in about.shards.items()},
        about.left_out,
        about.problems,
        _noted(store, folder.to, about, plan, created),
    )


def _noted(store: ArchiveStore, to: str, about: SnapshotAbout, plan: SnapshotPlan, created: str) -> tuple[str, ...]:
    """Note in the archive that the next snapshot can be made from this one. Returns notes if that failed."""
    if about.general or about.others:
        return ()
    made = NewestSnapshot(
        to, created.replace("+00:00", "Z"), {shard: one.marker.order for shard, one in about.shards.items()}
    )
    try:
        note_snapshot(store, made, plan.selection.manifests)
    except (ArchiveError, ArchiveUnavailable) as error:
        return (f"`archive expire` may drop what the next snapshot needs: this one is not noted there: {error}",)
    return ()
