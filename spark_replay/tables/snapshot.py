"""The current state of a dataset's tables, made from its archive.

A snapshot is a folder::

    snapshot.json             its description, and the places from which the archive continues; written last
    tables/TABLE/*.parquet    for users: the columns that the table has now
    updates/*.parquet         for a replay and the next snapshot: the same rows as updates, in the archive's columns and
                              ``shard``

A snapshot is computed from the whole archive, or from the previous snapshot and the archive after it. Both give the
same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import read
from spark_replay.tables.about import ABOUT
from spark_replay.tables.folder import Folder, Written
from spark_replay.tables.rolling import ANEW, select_since
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import LATEST, TableOptions, TableSelection, select, select_tables
from spark_replay.tables.snapshot_writer import SnapshotPlan, write_tables, write_updates
from spark_replay.tables.start import read_about, snapshot_rows
from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["write_snapshot"]


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
    """Write the tables as they were at ``until`` (by default the archive's end) into the empty folder ``to``.

    ``tables``: the tables to write; empty: all. ``readings``: how single tables are read. ``previous``: the folder of
    an earlier snapshot; then only the archive after it is read. Raises :class:`~wormhole.model.errors.UsageError` for a
    wrong request, :class:`~wormhole.model.errors.ArchiveError` and :class:`~wormhole.model.errors.ReplayError`.
    """
    folder = Folder(to, ABOUT)
    folder.begin()
    plan = _planned(store, tables, until, previous)
    held = write_updates(spark, folder, _source(spark, store, plan, previous), plan)
    return write_tables(spark, store, folder, plan, held, readings or {}, now)


def _planned(store: ArchiveStore, tables: Collection[str], until: Asked, previous: str) -> SnapshotPlan:
    if not previous:
        selection = select(store, stop=until)
        names, left_out = select_tables(selection.schemas, tables)
        return SnapshotPlan(selection, names, left_out, _others(selection, names, left_out))
    before = read_about(previous, store.dataset, store.copy)
    selection = select_since(store, before, f"the snapshot in {previous}", until)
    if missing := sorted({*tables} & {*before.left_out, *before.others}):
        why = "; ".join(before.problems_of(table)[0] for table in missing)
        raise UsageError(
            f"the snapshot in {previous} cannot be continued for all of these tables: {why}",
            hint=ANEW,
            code="snapshot-unusable",
        )
    excluded = {*before.left_out, *before.others}
    names, left_out = select_tables([one for one in selection.schemas if one.table not in excluded], tables)
    left_out = {**before.left_out, **left_out}
    others = sorted({*before.others, *_others(selection, names, left_out)})
    begins = {shard: one.begin for shard, one in before.shards.items()}
    return SnapshotPlan(selection, names, left_out, tuple(others), begins)


def _others(selection: TableSelection, names: Collection[str], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({one.table for one in selection.schemas if one.columns} - {*names, *left_out}))


def _source(spark: SparkSession, store: ArchiveStore, plan: SnapshotPlan, previous: str) -> DataFrame:
    """The rows of the archive, after those of the previous snapshot."""
    import pyspark.sql.functions as f

    rows = read(spark, store, plan.selection.shards, current=True)
    if previous:
        before = read_about(previous, store.dataset, store.copy)
        rows = snapshot_rows(spark, previous, before)("").unionByName(rows)
    return attach(rows, plan.selection.schemas).where(f.col("table").isin(*plan.names))
