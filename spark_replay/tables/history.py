"""Computes the history of tables: every version of every row, with its first and last place and the cause of its end.

A history is a folder. ``history.json`` describes it and is written last. ``tables/TABLE/*.parquet`` are the versions.

Rows of the archive are grouped by key and read in the order of the log (:mod:`spark_replay.tables.versions`). Spark
sorts them, so the memory of a task does not grow with the rows of a key. A snapshot is computed in the same way, and
has only the versions that have not ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay import frames
from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.combine import rows_that_count
from spark_replay.images import read_row
from spark_replay.selected import PLAIN, ColumnCondition, Wanted
from spark_replay.spark.ranges import TASK_ROWS, by_range
from spark_replay.tables.folder import Folder, TableWritten, Written, table_folder
from spark_replay.tables.rows import Decoding, decoding, needed, without
from spark_replay.tables.schemas import attach, lookup, schemas_of
from spark_replay.tables.selection import EARLIEST, ENDING, LATEST, TableOptions, key_problem, select, select_tables
from spark_replay.tables.versions import Barriers, EndedVersion, RowChange, Version, linked_keys, versions
from wormhole.formats import FormatSpec
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import Row, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ABOUT", "history", "version_rows", "write_history"]

ABOUT: Final = "history.json"

_MOST_GATHERED: Final = 1_000_000
"""The most range deletes, TRUNCATEs and key changes without whole images in memory. Each takes some hundred bytes."""
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 8 << 20

_GROUP: Final = ("_group", "_left")
_DROPPED: Final = ("_place", "_index", "_committed_at", "_old_key", "_key_end")
"""Columns of the change that are not columns of the version."""
_LIFE: Final[Mapping[str, pa.DataType]] = {
    "_valid_from": pa.binary(),
    "_valid_from_time": pa.timestamp("us", tz="UTC"),
    "_valid_to": pa.binary(),
    "_valid_to_time": pa.timestamp("us", tz="UTC"),
    "_ended_by": pa.string(),
}


def history(
    df: DataFrame,
    table: str,
    whole: Collection[str] = (),
    *,
    types: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    value_format: FormatSpec | str | None = None,
    inspect: bool = True,
) -> DataFrame:
    """The versions of the rows of ``table`` in archive rows ``df``.

    The columns are those of the table, ``_op`` (the operation that began the version), ``_valid_from`` and
    ``_valid_to`` (places, with their times; ``_valid_to`` is NULL for the current version), ``_ended_by``, ``_shard``,
    ``_tx`` and ``_unavailable``.

    ``whole``: shards of which ``df`` has every change since the first. ``inspect``: see :func:`version_rows`.
    ``types``, ``fields``, ``value_format``: as for :func:`~spark_replay.tables.rows.rows`. Raises as that function.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    given, plan = _versions(df, table, whole, types, fields, value_format, inspect)
    return given.mapInArrow(plan.batches, from_arrow_schema(_all_columns(plan))).drop(*_DROPPED)


def _versions(
    df: DataFrame,
    table: str,
    whole: Collection[str],
    types: Mapping[str, str] | None,
    fields: Mapping[str, str] | None,
    value_format: FormatSpec | str | None,
    inspect: bool,
) -> tuple[DataFrame, Decoding]:
    """The versions as archive rows, and the decoding to columns."""
    import pyspark.sql.functions as f

    if (problem := key_problem(schemas_of(df), table)) is not None:
        raise UsageError(f"{table} has no history: {problem}", hint="spark_replay.rows gives its changes as they came")
    plan = decoding(schemas_of(df), table, types=types, fields=fields, value_format=value_format)
    return needed(version_rows(df.where(f.col("table") == table), whole, inspect=inspect), table), plan


def _all_columns(plan: Decoding) -> pa.Schema:
    """The columns of the result of ``plan``: the table's and ours, with the beginning and the end of versions."""
    return pa.schema([*plan.shape(), *(pa.field(name, kind) for name, kind in _LIFE.items())])


def write_history(
    spark: SparkSession,
    store: ArchiveStore,
    to: str,
    *,
    tables: Collection[str] = (),
    readings: Mapping[str, TableOptions] | None = None,
    start: Asked = EARLIEST,
    until: Asked = LATEST,
    now: datetime,
) -> Written:
    """Write the versions that began or ended between ``start`` and ``until`` into the empty folder ``to``.

    By default these are all versions of the archive. ``tables``: the tables to write; empty: all. ``readings``: how
    single tables are read. Raises as :func:`~spark_replay.tables.snapshot.write_snapshot`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    folder = Folder(to, ABOUT)
    folder.begin()
    selection = select(store, start=start, stop=until)
    names, left_out = select_tables(selection.schemas, tables)
    readings = readings or {}
    written = {}
    with frames.reading():
        for table in names:
            how, name = readings.get(table, TableOptions()), table_folder(table)
            wanted = Wanted((ColumnCondition("table", "in", (table,)),))
            source = attach(frames.read(spark, store, selection.shards, wanted=wanted), selection.schemas)
            given, plan = _versions(
                source, table, selection.whole, how.types, how.fields, how.value_format, selection.needs_inspection
            )
            shape = _all_columns(plan)
            found = given.mapInArrow(plan.batches, from_arrow_schema(shape))
            changes = sum(entry.tables.get(table, 0) for one in selection.shards for entry in one.files)
            with by_range(found, (*plan.order, "_valid_from"), -(-changes // TASK_ROWS)) as ordered:
                files = folder.write(ordered, name, without(shape, *_DROPPED))
            written[table] = TableWritten(name, sum(one.rows for one in files))
    shards = selection.shards_to_json()
    folder.finish(
        {
            "dataset": store.dataset,
            "created": now.astimezone(UTC).isoformat(timespec="seconds"),
            "shards": shards,
            "tables": {table: {"folder": one.folder, "rows": one.rows} for table, one in written.items()},
            "left_out": left_out,
        }
    )
    return Written(to, written, {shard: str(one["place"]) for shard, one in shards.items()}, left_out)


def version_rows(
    df: DataFrame, whole: Collection[str] = (), *, current: bool = False, inspect: bool = True
) -> DataFrame:
    """The versions as archive rows whose ``update`` has the whole image, with the columns ``_valid_from`` to
    ``_ended_by``.

    ``current``: only versions that have not ended, as updates that create the row: an INSERT, or an UPSERT if the log
    had one or a backfill read the row. ``inspect``: run a Spark job now that collects the changes that end many rows,
    and the changes of keys; not needed if the manifests list none.

    ``df`` must not have rows without a key. Raises :class:`~wormhole.model.errors.ReplayError` if there are too many
    such changes for the memory.
    """
    import pyspark.sql.functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    schemas = schemas_of(df)
    gathered = _gather(df) if inspect else _Gathered({}, [])
    names = [field.name for field in SCHEMA]
    events = _in_groups(df.where(~f.col("op").isin(*ENDING)), gathered.links)
    order = ["shard", "table", "_group", "place"]
    sorted_ = events.repartition(*order[:-1]).sortWithinPartitions(*order).select(*names, "shard", *_GROUP)
    task = _Task(schemas, gathered.barriers, frozenset(whole), current)
    return attach(sorted_.mapInArrow(task.batches, from_arrow_schema(_SHAPE)), schemas)


_SHAPE: Final = pa.schema([*PLAIN, *(pa.field(name, kind) for name, kind in _LIFE.items())])


@dataclass(slots=True)
class _Gathered:
    """Changes that affect many rows. ``barriers``: by shard and table. ``links``: (shard, table, key, group)."""

    barriers: dict[tuple[str, str], Barriers]
    links: list[tuple[str, str, bytes, bytes]]


def _gather(df: DataFrame) -> _Gathered:
    import pyspark.sql.functions as f

    linking = f.col("old_key").isNotNull() & f.col("partial")
    rows = df.where(f.col("op").isin(*ENDING) | linking).select(
        "shard", "table", "place", "committed_at", "op", "key", "old_key", "update"
    )
    barriers: dict[tuple[str, str], Barriers] = {}
    pairs: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {}
    for count, row in enumerate(rows.toLocalIterator()):
        if count == _MOST_GATHERED:
            raise ReplayError(
                f"more than {_MOST_GATHERED} range deletes, TRUNCATEs and key changes without whole images",
                hint="choose single tables, or begin later",
            )
        where = (row.shard, row.table)
        if row.op not in ENDING:
            pairs.setdefault(where, []).append((bytes(row.key), bytes(row.old_key)))
            continue
        ended = EndedVersion(bytes(row.place), row.committed_at, row.op)
        kept = barriers.setdefault(where, Barriers())
        if row.op == Op.TRUNCATE.value:
            kept.truncates.append(ended)
        else:
            kept.ranges.append((*_range_of(read_row(bytes(row.update)), *where), ended))
    for one in barriers.values():
        one.sort()
    links = [(*where, key, group) for where, some in pairs.items() for key, group in linked_keys(some).items()]
    return _Gathered(barriers, links)


def _range_of(row: Row, shard: str, table: str) -> tuple[bytes, bytes]:
    first, stop = values_of(row.key), values_of(row.key_end)
    if first and stop and isinstance(first[0], bytes) and isinstance(stop[0], bytes):
        return first[0], stop[0]
    raise ReplayError(
        f"a range delete in {table} came without its keys, which were too large: it is unknown which rows are left",
        shard=shard,
        hint="leave the table out, or begin behind it",
    )


def _in_groups(df: DataFrame, links: list[tuple[str, str, bytes, bytes]]) -> DataFrame:
    """Each row with its group. A row that changed its key is also in the group of its former key."""
    import pyspark.sql.functions as f

    group, old_group = f.col("key"), f.col("old_key")
    if links:
        known = df.sparkSession.createDataFrame(links, "shard string, table string, _key binary, _to binary")
        for key, to in (("key", "_to_new"), ("old_key", "_to_old")):
            some = f.broadcast(known.withColumnsRenamed({"_key": key, "_to": to}))
            df = df.join(some, ["shard", "table", key], "left")
        group, old_group = f.coalesce("_to_new", "key"), f.coalesce("_to_old", "old_key")
    no_key = f.lit(None).cast("binary")
    stays = f.struct(group.alias("_group"), f.lit(False).alias("_left"), f.col("old_key").alias("_was"))
    comes = f.struct(group.alias("_group"), f.lit(False).alias("_left"), no_key.alias("_was"))
    leaves = f.struct(old_group.alias("_group"), f.lit(True).alias("_left"), f.col("old_key").alias("_was"))
    moved = f.col("old_key").isNotNull() & (group != old_group)
    split = f.explode(f.when(moved, f.array(comes, leaves)).otherwise(f.array(stays)))
    return df.withColumn("_where", split).select(
        *(name for name in SCHEMA.names if name != "old_key"),
        "shard",
        f.col("_where._was").alias("old_key"),
        f.col("_where._group").alias("_group"),
        f.col("_where._left").alias("_left"),
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """Computes versions. Runs on the executors."""

    schemas: tuple[Schema, ...]
    barriers: Mapping[tuple[str, str], Barriers]
    whole: frozenset[str]
    current: bool

    def batches(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The versions of sorted rows."""
        schema_of = lookup(self.schemas)
        made: list[dict[str, Any]] = []
        size = 0
        for where, members in groupby(self._parted(given), _group_of):
            if where is None:
                yield from members
                continue
            shard, table, _ = where
            barriers = self.barriers.get((shard, table)) or Barriers()
            changes = (_change(one) for one in members)
            for version in versions(changes, barriers, schema_of, from_first=shard in self.whole):
                if self.current and version.ended is not None:
                    continue
                made.append(self._row(version))
                size += len(version.update)
                if len(made) == _BATCH_ROWS or size > _BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(made, schema=_SHAPE)
                    made, size = [], 0
        if made:
            yield pa.RecordBatch.from_pylist(made, schema=_SHAPE)

    def _parted(self, given: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any] | pa.RecordBatch]:
        """Divide rows into single rows to fold, and batches of whole groups whose rows need no fold."""
        if not self.current or self.barriers:
            for batch in rows_that_count(given) if self.current else given:
                yield from batch.to_pylist()
            return
        for batch in rows_that_count(given):
            begins = _begins(batch)
            # The first group may have begun in the previous batch, and the last one may continue in the next.
            single = begins[1:-1].filter(pc.equal(pc.subtract(begins[2:], begins[1:-1]), 1))
            rows = batch.take(single)
            single = single.filter(_is_as_made_anew(rows))
            last = begins[-1].as_py()
            left = batch.slice(0, last)
            yield from left.filter(pc.invert(pc.is_in(pa.array(range(last), pa.int64()), single))).to_pylist()
            if len(single):
                yield _made_of(batch.take(single))
            yield from batch.slice(last).to_pylist()

    def _row(self, version: Version) -> dict[str, Any]:
        change, ended = version.change, version.ended
        carried: dict[str, Any] = change.carried  # type: ignore[assignment]  # what _change put there
        row = {**carried, "update": version.update, "partial": version.partial}
        if self.current:
            row["update"], row["op"] = _made_anew(version.update)
            row["old_key"], row["ends_tx"] = None, True
        if version.unseen:
            row["op"] = None
            row["key"] = change.key if change.op == Op.DELETE.value else change.old_key
        else:
            row["_valid_from"], row["_valid_from_time"] = change.place, change.time
        if ended is not None:
            row["_valid_to"], row["_valid_to_time"], row["_ended_by"] = ended.place, ended.time, ended.by
        return row


def _group_of(one: dict[str, Any] | pa.RecordBatch) -> tuple[str, str, bytes] | None:
    return None if isinstance(one, pa.RecordBatch) else (one["shard"], one["table"], one["_group"])


def _begins(rows: pa.RecordBatch) -> pa.Array:
    """The row where each group begins. The rows of a group are adjacent."""
    differs = pa.repeat(pa.scalar(False), rows.num_rows - 1)
    for name in ("shard", "table", "_group"):
        column = rows.column(name)
        differs = pc.or_(differs, pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)))
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(pc.indices_nonzero(differs), 1).cast(pa.int64())])


def _is_as_made_anew(rows: pa.RecordBatch) -> pa.Array:
    """Whether the update of each row already creates the row, without other changes; see :func:`_made_anew`."""
    whole = pc.and_not(pc.is_in(rows.column("op"), _CREATING), rows.column("partial"))
    return pc.and_not(pc.and_(whole, pc.is_null(rows.column("old_key"))), rows.column("_left"))


def _made_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as current versions."""
    own = {"_valid_from": rows.column("place"), "_valid_from_time": rows.column("committed_at")}
    own |= {name: rows.column(name) for name in PLAIN.names}
    own["ends_tx"] = pa.repeat(pa.scalar(True), rows.num_rows)
    columns = [own[one.name].cast(one.type) if one.name in own else pa.nulls(len(rows), one.type) for one in _SHAPE]
    return pa.RecordBatch.from_arrays(columns, schema=_SHAPE)


def _change(row: dict[str, Any]) -> RowChange:
    left = row.pop("_left")
    del row["_group"]
    return RowChange(
        row["place"],
        row["committed_at"],
        row["op"],
        row["key"],
        row["old_key"],
        row["schema_id"],
        row["partial"],
        row["update"],
        left,
        row,
    )


def _made_anew(update: bytes) -> tuple[bytes, str]:
    """An update that creates the row, and its operation.

    It is an UPSERT for a row that a backfill read, because such a row may have existed before.
    """
    row = read_row(update)
    op = Op.UPSERT if row.op in _UPSERTS else Op.INSERT
    row.op = _INSERT if op is Op.INSERT else _UPSERT
    row.ClearField("before")
    row.ClearField("old_key")
    return row.SerializeToString(deterministic=True), op.value


_CREATING: Final = pa.array([Op.INSERT.value, Op.UPSERT.value])
_INSERT: Final = Row(op="INSERT").op
_UPSERT: Final = Row(op="UPSERT").op
_UPSERTS: Final = frozenset({_UPSERT, Row(op="READ").op})
