"""Writes what a snapshot holds, whatever its rows were made from: updates, tables, and last what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.newest_snapshot import NewestSnapshot, note_snapshot
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.tables.about import SnapshotAbout, SnapshotShard, SnapshotTable, about_to_json
from spark_replay.tables.folder import Folder, TableWritten, Written, table_folder
from spark_replay.tables.history import version_rows
from spark_replay.tables.rolling import lost_after
from spark_replay.tables.rows import decoded, decoding
from spark_replay.tables.selection import Selection, TableOptions
from spark_replay.tables.updates import UPDATES, TableRows, UpdatesFile, read_updates, summed
from wormhole.model.errors import ArchiveError, ArchiveUnavailable
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HeldRows", "SnapshotPlan", "write_tables", "write_updates"]

_ROW_GROUP: Final = 8 << 20  # bytes: what a task of a replay has in memory at a time


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows as updates: the ``files`` that they are in, and by table what these hold."""

    files: tuple[UpdatesFile, ...] = ()
    tables: Mapping[str, TableRows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """What is read and written. ``names``: tables to write. ``left_out`` and ``others``: as in
    :class:`~spark_replay.tables.about.SnapshotAbout`. ``begins``: by shard, where its rows come from began; else where
    the range begins.
    """

    selection: Selection
    names: tuple[str, ...]
    left_out: Mapping[str, str]
    others: tuple[str, ...]
    begins: Mapping[str, str] = field(default_factory=dict)

    def newest(self, table: str) -> tuple[Schema, ...]:
        """The newest schemas of a table; none where no row of it lies in the range."""
        return tuple(one.schema for _, one in sorted(self.selection.newest.get(table, {}).items()))

    def schemas_of(self, table: str, rows: TableRows) -> tuple[Schema, ...]:
        """The schemas of these rows, and the newest ones; all that the table ever had where there are neither."""
        own = [schema for schema in self.selection.schemas if schema.table == table]
        ids = rows.schemas | {schema.id for schema in self.newest(table)}
        return tuple(schema for schema in own if schema.id in ids or not ids)

    def about(self, store: ArchiveStore, held: HeldRows) -> SnapshotAbout:
        """What was written."""
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
    """Fold ``source`` (archive rows of the tables to write) into the rows as they are at its end, as updates.

    To be called within :func:`spark_replay.frames.reading`.
    """
    current = version_rows(source, plan.selection.whole, current=True, inspect=plan.selection.needs_inspection).select(
        *SCHEMA.names, "shard"
    )
    folder.write(current.sortWithinPartitions("table", "shard", "place"), UPDATES, row_group=_ROW_GROUP)
    files, held = summed(spark, folder.storage, UPDATES)
    return HeldRows(tuple(files), held)


def write_tables(
    spark: SparkSession,
    store: ArchiveStore,
    folder: Folder,
    plan: SnapshotPlan,
    held: HeldRows,
    readings: Mapping[str, TableOptions],
    now: datetime,
) -> Written:
    """Write the tables of the updates, and what the snapshot is; then it counts, and is noted in the archive."""
    about = plan.about(store, held)
    for table, one in about.tables.items():
        how = readings.get(table, TableOptions())
        updates = read_updates(spark, folder.storage, held.files, table=table)
        columns = decoding(
            plan.schemas_of(table, held.tables.get(table, TableRows())),
            table,
            types=how.types,
            fields=how.fields,
            value_format=how.value_format,
            only=plan.newest(table),
        )
        shaped = decoded(updates, table, columns).drop("_op", "_index", "_old_key", "_key_end")
        folder.write(shaped, one.folder, sum(each.rows for each in held.tables.values()))
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
    """Note in the archive what the next snapshot can be made from; and why the archive does not know it."""
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
