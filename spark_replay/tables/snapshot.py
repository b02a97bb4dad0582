"""The current state of a dataset's tables, out of its archive.

A folder::

    snapshot.json         what it is, and from which place on the archive goes on; written last
    tables/TABLE/*.parquet    for people: the columns that the table has now
    updates/*.parquet         for a replay and the next snapshot: the same rows as updates, in the archive's columns and
                              ``shard``

It is made of the archive from its first row on, or of the previous snapshot and what the archive has after that. Both
give the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.newest_snapshot import NewestSnapshot, note_snapshot
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, read, reading
from spark_replay.replay.plan import Asked
from spark_replay.tables.about import ABOUT, SnapshotAbout, SnapshotShard, SnapshotTable, about_to_json
from spark_replay.tables.folder import Folder, TableWritten, Written, table_folder
from spark_replay.tables.history import version_rows
from spark_replay.tables.rolling import ANEW, lost_after, select_since
from spark_replay.tables.rows import decoded, decoding
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import LATEST, Selection, TableOptions, select, select_tables
from spark_replay.tables.start import read_about, snapshot_rows
from spark_replay.tables.updates import UPDATES, TableRows, UpdatesFile, read_updates, summed
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, UsageError
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["write_snapshot"]

_ROW_GROUP: Final = 8 << 20  # bytes: what a task of a replay has in memory at a time


def write_snapshot(
    spark: SparkSession,
    store: ArchiveStore,
    to: str,
    *,
    tables: Collection[str] = (),
    readings: Mapping[str, TableOptions] | None = None,
    until: Asked = LATEST,
    previous: str = "",
    now: datetime,
) -> Written:
    """Write the tables as they were at ``until`` (the archive's end) into the empty folder ``to``.

    ``tables``: only these. ``readings``: how single ones are read. ``previous``: the folder of an earlier snapshot; of
    the archive only what comes after it is read. Raises :class:`~wormhole.model.errors.UsageError` for what is wrong
    with the request, :class:`~wormhole.model.errors.ArchiveError`, :class:`~wormhole.model.errors.ReplayError`.
    """
    folder = Folder(to, ABOUT)
    folder.begin()
    plan = _planned(store, tables, until, previous)
    with reading():
        source = _source(spark, store, plan, previous)
        current = version_rows(
            source, plan.selection.whole, current=True, inspect=plan.selection.needs_inspection
        ).select(*SCHEMA.names, "shard")
        folder.write(current.sortWithinPartitions("table", "shard", "place"), UPDATES, row_group=_ROW_GROUP)
    files, held = summed(spark, folder.storage, UPDATES)
    about = plan.about(store, files, held)
    for table, one in about.tables.items():
        how = (readings or {}).get(table, TableOptions())
        updates = read_updates(spark, folder.storage, files, table=table)
        columns = decoding(
            plan.schemas_of(table, held.get(table, TableRows())),
            table,
            types=how.types,
            fields=how.fields,
            value_format=how.value_format,
            only=plan.newest(table),
        )
        shaped = decoded(updates, table, columns).drop("_op", "_index", "_old_key", "_key_end")
        folder.write(shaped, one.folder, sum(each.rows for each in held.values()))
    created = now.astimezone(UTC).isoformat(timespec="seconds")
    folder.finish(about_to_json(about, created))
    return Written(
        to,
        {table: TableWritten(one.folder, one.rows, about.problems_of(table)) for table, one in about.tables.items()},
        {shard: str(one.marker.order) for shard, one in about.shards.items()},
        about.left_out,
        about.problems,
        _noted(store, to, about, plan, created),
    )


def _noted(store: ArchiveStore, to: str, about: SnapshotAbout, plan: _Plan, created: str) -> tuple[str, ...]:
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is read and written. ``before``: the previous snapshot. ``names``: tables to write. ``left_out`` and
    ``others``: as in :class:`~spark_replay.tables.about.SnapshotAbout`.
    """

    selection: Selection
    before: SnapshotAbout | None
    names: tuple[str, ...]
    left_out: Mapping[str, str]
    others: tuple[str, ...]

    def newest(self, table: str) -> tuple[Schema, ...]:
        """The newest schemas of a table; none where no row of it lies in the range."""
        return tuple(one.schema for _, one in sorted(self.selection.newest.get(table, {}).items()))

    def schemas_of(self, table: str, rows: TableRows) -> tuple[Schema, ...]:
        """The schemas of these rows, and the newest ones; all that the table ever had where there are neither."""
        own = [schema for schema in self.selection.schemas if schema.table == table]
        ids = rows.schemas | {schema.id for schema in self.newest(table)}
        return tuple(schema for schema in own if schema.id in ids or not ids)

    def about(
        self, store: ArchiveStore, files: Collection[UpdatesFile], held: Mapping[str, TableRows]
    ) -> SnapshotAbout:
        """What was written."""
        tables = {}
        schemas: list[Schema] = []
        for table in self.names:
            rows = held.get(table, TableRows())
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
            tuple(files),
        )

    def _shard(self, one: ShardFiles) -> SnapshotShard:
        assert one.begin is not None
        assert one.until is not None
        manifest = self.selection.manifests[one.shard]
        before = self.before.shards.get(one.shard) if self.before is not None else None
        lacks = ""
        if one.shard not in self.selection.whole:
            begins = f"the archive of {one.shard} begins at {manifest.begin.order}, not at the shard's first row"
            lacks = lost_after(manifest, one) or begins
        begin = str(one.begin.order) if before is None else before.begin
        return SnapshotShard(begin, one.until, manifest.log, lacks)


def _planned(store: ArchiveStore, tables: Collection[str], until: Asked, previous: str) -> _Plan:
    if not previous:
        selection = select(store, stop=until)
        names, left_out = select_tables(selection.schemas, tables)
        return _Plan(selection, None, names, left_out, _others(selection, names, left_out))
    before = read_about(previous, store.dataset, store.copy)
    selection = select_since(store, before, previous, until)
    if missing := sorted({*tables} & {*before.left_out, *before.others}):
        why = "; ".join(before.problems_of(table)[0] for table in missing)
        raise UsageError(f"the snapshot in {previous} cannot be continued for all of these tables: {why}", hint=ANEW)
    excluded = {*before.left_out, *before.others}
    names, left_out = select_tables([one for one in selection.schemas if one.table not in excluded], tables)
    left_out = {**before.left_out, **left_out}
    others = sorted({*before.others, *_others(selection, names, left_out)})
    return _Plan(selection, before, names, left_out, tuple(others))


def _others(selection: Selection, names: Collection[str], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({one.table for one in selection.schemas if one.columns} - {*names, *left_out}))


def _source(spark: SparkSession, store: ArchiveStore, plan: _Plan, previous: str) -> DataFrame:
    """The rows of the archive, and those of the previous snapshot before them."""
    import pyspark.sql.functions as f

    rows = read(spark, store, plan.selection.shards)
    if plan.before is not None:
        rows = snapshot_rows(spark, previous, plan.before)("").unionByName(rows)
    return attach(rows, plan.selection.schemas).where(f.col("table").isin(*plan.names))
