"""The current state of a dataset's tables, out of its archive.

A folder::

    snapshot.json         what it is, and from which place on the archive goes on; written last
    tables/TABLE/*.parquet    for people: the table's columns
    updates/*.parquet         for a replay: the same rows as updates, in the archive's columns and ``shard``
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.manifest import marker_from_text
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import read, reading
from spark_replay.replay.plan import Asked
from spark_replay.tables.folder import Folder, TableWritten, Written, table_folder
from spark_replay.tables.history import version_rows
from spark_replay.tables.rows import rows
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import LATEST, Selection, TableOptions, select, select_tables
from spark_replay.tables.updates import UpdatesFile, file_from_json, file_to_json, read_updates, summed
from wormhole.model.errors import ProtocolError, ReplayError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ABOUT", "Start", "about_start", "start_rows", "write_snapshot"]

ABOUT: Final = "snapshot.json"
_UPDATES: Final = "updates"
_ROW_GROUP: Final = 8 << 20  # bytes: what a task of a replay has in memory at a time


def write_snapshot(
    spark: SparkSession,
    store: ArchiveStore,
    to: str,
    *,
    tables: Collection[str] = (),
    readings: Mapping[str, TableOptions] | None = None,
    until: Asked = LATEST,
    now: datetime,
) -> Written:
    """Write the tables as they were at ``until`` (the archive's end) into the empty folder ``to``.

    ``tables``: only these. ``readings``: how single ones are read. Raises :class:`~wormhole.model.errors.UsageError`
    for what is wrong with the request, :class:`~wormhole.model.errors.ArchiveError`,
    :class:`~wormhole.model.errors.ReplayError`.
    """
    import pyspark.sql.functions as f

    folder = Folder(to, ABOUT)
    folder.begin()
    selection = select(store, stop=until)
    names, left_out = select_tables(selection.schemas, tables)
    readings = readings or {}
    with reading():
        source = attach(read(spark, store, selection.shards), selection.schemas).where(f.col("table").isin(*names))
        current = version_rows(source, selection.whole, current=True, inspect=selection.needs_inspection).select(
            *SCHEMA.names, "shard"
        )
        folder.write(current.sortWithinPartitions("table", "shard", "place"), _UPDATES, row_group=_ROW_GROUP)
    files = summed(spark, folder.storage, _UPDATES)
    count = folder.rows(_UPDATES)
    written = {}
    for table in names:
        how = readings.get(table, TableOptions())
        updates = attach(read_updates(spark, folder.storage, files, table=table), selection.schemas)
        shaped = rows(updates, table, types=how.types, fields=how.fields, value_format=how.value_format)
        folder.write(shaped.drop("_op", "_index", "_old_key", "_key_end"), table_folder(table), count)
        written[table] = TableWritten(table_folder(table), folder.rows(table_folder(table)))
    problems = _problems(selection, names, left_out, unknown=folder.any_true(_UPDATES, "partial"))
    places = {one.shard: str(one.until.order) for one in selection.shards if one.until is not None}
    about = _about(store.dataset, store.copy, selection, written, left_out, problems, now)
    folder.finish({**about, "updates": [file_to_json(file) for file in files]})
    return Written(to, written, places, left_out, problems)


def _problems(
    selection: Selection, names: Collection[str], left_out: Mapping[str, str], unknown: int
) -> tuple[str, ...]:
    problems = [
        f"the archive of {one.shard} begins at {selection.manifests[one.shard].begin.order}, "
        "not at the shard's first row"
        for one in selection.shards
        if one.shard not in selection.whole
    ]
    problems += [f"{table} is left out: {why}" for table, why in left_out.items()]
    others = {schema.table for schema in selection.schemas if schema.columns} - set(names) - set(left_out)
    if others:
        problems.append(f"it was made without {', '.join(sorted(others))}")
    if unknown:
        problems.append("some rows have values that the log does not hold")
    return tuple(problems)


def _about(
    dataset: str,
    copy: str,
    selection: Selection,
    written: Mapping[str, TableWritten],
    left_out: Mapping[str, str],
    problems: tuple[str, ...],
    now: datetime,
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "copy": copy,
        "created": now.astimezone(UTC).isoformat(timespec="seconds"),
        "complete": not problems,
        "problems": problems,
        "shards": selection.shards_to_json(),
        "tables": {table: {"folder": one.folder, "rows": one.rows} for table, one in written.items()},
        "left_out": dict(left_out),
        "schemas": [base64.b64encode(schema.canonical).decode() for schema in selection.schemas],
    }


@dataclass(frozen=True)
class Start:
    """A snapshot to begin a replay with. ``of``: its rows, of one shard or of all where it is empty: the archive's
    columns and ``shard``, in no
    order; each makes its row anew. ``places``: by shard, the datamarker from which the archive goes on. ``schemas``: by
    id, unsigned."""

    of: Callable[[str], DataFrame]
    places: Mapping[str, Datamarker]
    schemas: Mapping[int, Schema] = field(default_factory=dict)


def start_rows(spark: SparkSession, to: str, dataset: str, copy: str = "") -> Start:
    """The snapshot in ``to`` as the beginning of a replay of ``dataset``, from the archive of ``copy``.

    Raises :class:`~wormhole.model.errors.ReplayError` for one that is not complete, is another dataset's or copy's, or
    cannot be read.
    """
    import pyspark.sql.functions as f

    places, schemas = about_start(to, dataset, copy)
    folder = Folder(to, ABOUT)
    files = _files(folder)

    def rows(shard: str) -> DataFrame:
        if files is not None:
            only = {"shard": shard} if shard else {}
            return attach(read_updates(spark, folder.storage, files, **only), schemas)
        every = spark.read.parquet(folder.url(_UPDATES))
        return attach(every.where(f.col("shard") == shard) if shard else every, schemas)

    return Start(rows, places, {schema.id: schema for schema in schemas})


def _files(folder: Folder) -> list[UpdatesFile] | None:
    """The files of the updates; ``None`` for a snapshot of an earlier release, of which pages alone have checksums."""
    given = folder.about().get("updates")
    try:
        return None if given is None else [file_from_json(one) for one in given]
    except (KeyError, TypeError, ValueError) as error:
        raise ReplayError(
            f"{folder.to}/{ABOUT} cannot be read: {type(error).__name__} {error}", hint="write it anew"
        ) from error


def about_start(to: str, dataset: str, copy: str = "") -> tuple[dict[str, Datamarker], tuple[Schema, ...]]:
    """What :func:`start_rows` says, without Spark: datamarkers by shard, and schemas. Raises as it does."""
    given = Folder(to, ABOUT).about()
    try:
        if given["dataset"] != dataset:
            raise ReplayError(
                f"the snapshot in {to} is of {given['dataset']}, not of {dataset}", hint="name another folder"
            )
        if copy and given["copy"] != copy:
            raise ReplayError(
                f"the snapshot in {to} is of copy {given['copy']}, not of {copy}: their places do not compare",
                hint="name another folder",
            )
        if not given["complete"]:
            raise ReplayError(
                f"the snapshot in {to} is no start for a replay: {'; '.join(given['problems'])}",
                hint="a start is a snapshot of every table, from an archive that holds them from their first row",
            )
        places = {shard: marker_from_text(one["marker"]) for shard, one in given["shards"].items()}
        return places, tuple(Schema.from_canonical(base64.b64decode(text)) for text in given["schemas"])
    except (KeyError, TypeError, ValueError, AttributeError, ProtocolError, ProtobufDecodeError) as error:
        raise ReplayError(
            f"{to}/{ABOUT} cannot be read: {type(error).__name__} {error}", hint="write it anew"
        ) from error
