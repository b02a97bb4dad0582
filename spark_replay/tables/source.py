"""The archive as a data source of Spark: ``spark.read.format("wormhole")`` and ``spark.readStream``.

A DataFrame holds the ranges that the archive had when it was loaded. The files that have these ranges are looked up in
the newest manifests each time a query is planned. Conditions on shard, table, operation, place and time choose files,
row groups and rows before anything goes to Spark.

A stream's offset is a place in each shard: everything before it was read. The files between two offsets are looked up
in the newest manifests each time. So merging files and restarting from a checkpoint change nothing about the rows. Only
rows that a backfill read at an offset's place may come twice, because the offset does not show which of them were read.

This module imports PySpark: other modules import it when they need it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from spark_replay.archive.columns import before_reads
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.ranges import asked_from, asked_until, files_between
from spark_replay.archive.reader import after, upto
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.frames import reading
from spark_replay.selected import COLUMNS, PLAIN, ColumnCondition, FilePiece, Wanted, piece_rows, tasks_of
from spark_replay.tables.rows import NEEDED, Decoding, decoding
from spark_replay.tables.schemas import metadata
from spark_replay.tables.selection import select
from wormhole.model.errors import ArchiveError, ReplayError, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.values import Op

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
except ModuleNotFoundError:  # before Spark 4.2, whose streams know no limit: see `WormholeSource.streamReader`
    if not TYPE_CHECKING:
        ReadAllAvailable = ReadLimit = ReadMaxFiles = SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

__all__ = [
    "FORMAT_NAME",
    "ArchiveReader",
    "ArchiveStreamReader",
    "FilteringReader",
    "Options",
    "WormholeSource",
    "next_offset",
    "pieces",
    "register",
    "stream",
]

FORMAT_NAME: Final = "wormhole"
_ASKING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_MOST_FILES: Final = 64  # files of a shard in one batch, so that the first batch is not the whole archive
_SLOTS: Final = 16  # assumed, because the number of concurrent tasks is not known when a query is planned
_OF_BATCHES: Final = ("from", "until")
_OF_STREAMS: Final = ("start", "max_files", "gaps")
_OF_BOTH: Final = ("to", "dataset", "shards", "tables", "table", "columns")


def register(spark: SparkSession) -> None:
    """Register the format ``wormhole`` with a session, if Spark does not find it by itself."""
    spark.dataSource.register(WormholeSource)


def stream(
    spark: SparkSession,
    store: ArchiveStore,
    *,
    start: str = "earliest",
    max_files: int = _MOST_FILES,
    gaps: str = "refuse",
) -> DataFrame:
    """The updates of an archive as a streaming DataFrame: the archive's columns and ``shard``, for
    :func:`spark_replay.tables.rows.rows`.

    ``start``: where a query without a checkpoint begins, ``earliest`` or ``latest``. ``max_files``: most files of each
    shard in one batch. ``gaps``: what happens when a query reaches updates that the archive lost (retention, a gap in
    the log): ``refuse`` ends the query with an error that names what is missing, ``skip`` continues after it.

    The columns are those of the tables at the start. A query ends with an error when a table that it reads changes, and
    continues when it is started again. Raises :class:`~wormhole.model.errors.UsageError`.
    """
    given = {"to": store.to, "dataset": store.dataset, "start": start, "max_files": str(max_files), "gaps": gaps}
    Options.read(given)
    register(spark)
    with reading():
        return spark.readStream.format(FORMAT_NAME).options(**given).load()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a query. ``shards``, ``tables``, ``columns``: empty means all. ``table``: the table whose changes
    are read in its own columns; empty: the archive's columns. ``named``: the options that were given.
    """

    to: str
    dataset: str
    shards: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    table: str = ""
    columns: tuple[str, ...] = ()
    begin: str = "earliest"
    until: str = "end"
    start: str = "earliest"
    max_files: int = _MOST_FILES
    gaps: str = "refuse"
    named: frozenset[str] = frozenset()

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """Raises :class:`~wormhole.model.errors.UsageError`."""
        known = (*_OF_BOTH, *_OF_BATCHES, *_OF_STREAMS)
        if strangers := sorted(given.keys() - {*known}):
            raise UsageError(
                f"the format {FORMAT_NAME} has no option {', '.join(strangers)}", hint=f"it has {', '.join(known)}"
            )
        for name in ("to", "dataset"):
            if not given.get(name):
                raise UsageError(
                    f"the option {name} is missing",
                    hint='for example .option("to", "s3://bucket/folder").option("dataset", "orders")',
                )
        start, files, gaps = (
            given.get("start", "earliest"),
            given.get("max_files", str(_MOST_FILES)),
            given.get("gaps", "refuse"),
        )
        if start not in ("earliest", "latest"):
            raise UsageError(f"start is {start!r}", hint='write "earliest" or "latest"')
        if gaps not in ("refuse", "skip"):
            raise UsageError(f"gaps is {gaps!r}", hint='write "refuse" or "skip"')
        if given.get("table") and given.get("tables"):
            raise UsageError(
                "the options table and tables are both given",
                hint="table gives one table's own columns, tables the archive's columns of several",
            )
        if given.get("from") == "marker":
            raise UsageError("a query has no datamarker", hint="write earliest, a place or a time")
        if not files.isdecimal() or int(files) < 1:
            raise UsageError(f"max_files is {files!r}", hint="write a number of files, at least 1")
        return cls(
            given["to"],
            given["dataset"],
            _listed(given.get("shards", "")),
            _listed(given.get("tables", "")),
            given.get("table", ""),
            _listed(given.get("columns", "")),
            given.get("from", "earliest"),
            given.get("until", "end"),
            start,
            int(files),
            gaps,
            frozenset(given),
        )

    def only(self, names: Iterable[str], what: str) -> None:
        """Raises :class:`~wormhole.model.errors.UsageError` for options that ``what`` does not have."""
        if others := sorted({*names} & self.named):
            raise UsageError(f"{what} has no option {', '.join(others)}", hint="leave it out")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


@dataclass(frozen=True, slots=True)
class _Shape:
    """The range of a query, and its columns.

    ``ranges``: by shard, the range that the archive had. ``tables``: tables whose rows are read; empty: all. ``plan``:
    how the columns of one table are made; ``None``: the archive's own columns stay. ``columns``: those that are shown.
    """

    ranges: Mapping[str, tuple[Datamarker, Datamarker]]
    tables: tuple[str, ...]
    schemas: tuple[Schema, ...]
    plan: Decoding | None
    columns: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> _Shape:
        """Looks into the archive. Raises as :func:`~spark_replay.tables.selection.select`."""
        now_us = time.time_ns() // 1000
        store = open_store(options.to, options.dataset)
        begin, until = asked_from(options.begin, "", now_us), asked_until(options.until, now_us)
        found = select(store, options.shards, begin, until)
        plan = decoding(found.schemas, options.table) if options.table else None
        every = (plan.shape() if plan else PLAIN).names
        if strangers := [name for name in options.columns if name not in every]:
            raise UsageError(f"there is no column {', '.join(strangers)}", hint=f"there are {', '.join(every)}")
        ranges = {
            one.shard: (one.begin, one.until) for one in found.shards if one.begin is not None and one.until is not None
        }
        if unknown := sorted({*options.tables} - {one.table for one in found.schemas}):
            known = ", ".join(sorted({one.table for one in found.schemas})) or "none"
            raise UsageError(f"the archive has no table {', '.join(unknown)} here", hint=f"its tables are {known}")
        tables = (options.table,) if plan else options.tables
        return cls(ranges, tables, found.schemas, plan, options.columns or tuple(every))

    @property
    def arrow(self) -> pa.Schema:
        """The columns that are shown."""
        every = self.plan.shape() if self.plan else PLAIN
        return pa.schema([every.field(name) for name in self.columns])

    @property
    def spark(self) -> StructType:
        """The columns as Spark's type, with the schemas of the rows in the metadata."""
        from pyspark.sql.pandas.types import from_arrow_schema

        shape = from_arrow_schema(self.arrow)
        for field in shape.fields:
            if self.plan is None and field.name == "schema_id":
                field.metadata = metadata(self.schemas)
        return shape

    @property
    def names(self) -> dict[str, str]:
        """The columns that conditions may be about: the archive's column by its name in the query."""
        if self.plan is None:
            return {name: name for name in PLAIN.names}
        return {f"_{name}": name for name in ("shard", "place", "op", "committed_at")}

    def wanted(self, conditions: Iterable[ColumnCondition] = ()) -> Wanted:
        """The conditions for the rows of the archive that are read."""
        own = (ColumnCondition("table", "in", self.tables),) if self.tables else ()
        return Wanted((*own, *conditions))

    def rows(self, store: ArchiveStore, some: Iterable[FilePiece], wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """The rows of a task in the form that Spark gets."""
        needed = self.columns if self.plan is None else NEEDED
        plain = tuple(name for name in COLUMNS if name in needed)
        batches = (batch for piece in some for batch in piece_rows(store, piece, plain, wanted))
        for batch in batches if self.plan is None else self.plan.batches(batches):
            yield batch.select(self.columns)


class WormholeSource(DataSource):
    """The format ``wormhole``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options.read({name: value for name, value in options.items() if value is not None})

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return FORMAT_NAME

    @cached_property
    def _shape(self) -> _Shape:
        # Spark asks for the schema first, and then sends this object on. So all readers have the same ranges.
        return _Shape.of(self._options)

    def schema(self) -> StructType:
        """The archive's columns and ``shard``, or those of the table."""
        return self._shape.spark

    def reader(self, schema: StructType) -> ArchiveReader:
        """The reader of a static query."""
        self._check(schema)
        self._options.only(_OF_STREAMS, "a query that is no stream")
        return (FilteringReader if _may_filter() else ArchiveReader)(self._options, self._shape)

    def streamReader(self, schema: StructType) -> ArchiveStreamReader:  # noqa: N802  # Spark's name
        """The reader of a streaming query."""
        if SupportsTriggerAvailableNow is object:
            raise UsageError(
                "a stream over the archive needs Spark 4.2 or newer: older ones lose the end of the last batch",
                hint="run it with PySpark 4.2, or read batches with spark.read and the options from and until",
            )
        self._check(schema)
        self._options.only(_OF_BATCHES, "a stream")
        return ArchiveStreamReader(self._options, self._shape)

    def _check(self, schema: StructType) -> None:
        if schema.names != list(self._shape.columns):
            raise UsageError(
                "the columns of an archive are its own", hint="leave out .schema(...); the option columns chooses some"
            )


def _may_filter() -> bool:
    """Whether Spark passes a query's conditions to a reader, and does not mix up those of two queries.

    A Spark that passes no conditions refuses a reader that accepts them. Up to 4.3 Spark mixes them up: the second
    query on one DataFrame gets the rows that the conditions of the first selected. The release that corrected this also
    added `pushLimit`, by which it is recognized.
    """
    return _ASKING in sys.modules and hasattr(DataSourceReader, "pushLimit")


class _Pieces(InputPartition):
    """The pieces of files that one task reads."""

    def __init__(self, pieces_: Sequence[FilePiece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces_)


class ArchiveReader(DataSourceReader):
    """Reads the ranges that the archive had when the DataFrame was made."""

    def __init__(self, options: Options, shape: _Shape) -> None:
        self._store = open_store(options.to, options.dataset)
        self._shape = shape
        self._conditions: list[ColumnCondition] = []

    def partitions(self) -> list[_Pieces]:
        """The files by the newest manifests.

        Raises :class:`~wormhole.model.errors.ReplayError` for a range that the archive no longer holds.
        """
        wanted = self._shape.wanted(self._conditions)
        found = []
        for shard, (begin, until) in self._shape.ranges.items():
            manifest = self._store.read(shard)
            if manifest is None or manifest.end.order < until.order or manifest.begin.order > begin.order:
                raise ReplayError(
                    f"{begin.order} to {until.order} is not held any more: the archive changed since it was loaded",
                    shard=shard,
                    hint="load it again",
                    code="archive-lacks-range",
                )
            bounds = after(begin), upto(until)
            every = (FilePiece(shard, entry, *bounds) for entry in files_between(manifest, begin, until))
            found += [piece for one in every if (piece := wanted.cut(one)) is not None]
        return [_Pieces(some) for some in tasks_of(found, _SLOTS)] or [_Pieces(())]

    def read(self, partition: _Pieces) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of one task."""
        return self._shape.rows(self._store, partition.pieces, self._shape.wanted(self._conditions))


class FilteringReader(ArchiveReader):
    """The reader for a Spark that passes conditions to readers."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Take the conditions that files and their rows can decide exactly; give the others back."""
        from spark_replay.tables.pushdown import conditions_of  # its names are of Spark 4.1 and newer

        for one in filters:
            found = conditions_of(one, self._shape.names)
            if found is None:
                yield one
            else:
                self._conditions += found


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{shard: place}``, places as text."""

    def __init__(self, options: Options, shape: _Shape) -> None:
        self._options = options
        self._shape = shape
        self._store = open_store(options.to, options.dataset)
        self._target: dict[str, str] | None = None
        self._planned: tuple[dict[str, str], list[Manifest]] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's names, here and below
        """Where a query without a checkpoint begins."""
        latest = self._options.start == "latest"
        return {one.shard: str(one.end.order if latest else one.begin.order) for one in self._manifests()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of one batch."""
        return ReadMaxFiles(self._options.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends where the archive ends now."""
        self._target = {one.shard: str(one.end.order) for one in self._manifests()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """The end of the next batch."""
        most = None if isinstance(limit, ReadAllAvailable) else self._options.max_files
        manifests = self._manifests()
        offset = next_offset(manifests, start, most, self._target)
        self._planned = offset, manifests
        return offset

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[_Pieces]:
        """The pieces of files between two offsets.

        Raises :class:`~wormhole.model.errors.ArchiveError` for a range that the archive no longer holds.
        """
        # The manifests from which the offset was computed. For the offset of a checkpoint the newest manifests are
        # read, so that files that were merged since are found.
        manifests = self._planned[1] if self._planned and self._planned[0] == end else self._manifests()
        every = pieces(manifests, start, end, skip_gaps=self._options.gaps == "skip")
        wanted = self._shape.wanted()
        found = [piece for one in every if (piece := wanted.cut(one)) is not None]
        return [_Pieces(some) for some in tasks_of(found, _SLOTS)]

    def read(self, partition: _Pieces) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of one task."""
        return self._shape.rows(self._store, partition.pieces, self._shape.wanted())

    def _manifests(self) -> list[Manifest]:
        chosen = self._options.shards or self._store.shards()
        return [one for shard in chosen if (one := self._store.read(shard)) is not None]


def next_offset(
    manifests: list[Manifest], start: Mapping[str, str], max_files: int | None, target: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The offset after at most ``max_files`` further files of each shard, and not after ``target``.

    A new shard is read from its beginning. A shard that no longer exists keeps its place.
    """
    offset = dict(start)
    for manifest in manifests:
        shard = manifest.shard
        if target is not None and shard not in target:
            continue
        at = LogPosition.parse(start[shard]) if shard in start else manifest.begin.order
        behind = [entry for entry in manifest.files if entry.end.order > at]
        end = manifest.end.order if max_files is None or len(behind) <= max_files else behind[max_files - 1].end.order
        if target is not None:
            end = min(end, LogPosition.parse(target[shard]))
        offset[shard] = str(max(at, end))
    return offset


def pieces(
    manifests: list[Manifest], start: Mapping[str, str], end: Mapping[str, str], *, skip_gaps: bool = False
) -> list[FilePiece]:
    """The files between two offsets, with the range of rows to read of each. Raises
    :class:`~wormhole.model.errors.ArchiveError` if something is missing in between, unless ``skip_gaps``.
    """
    by_shard = {manifest.shard: manifest for manifest in manifests}
    found: list[FilePiece] = []
    for shard, last in end.items():
        manifest = by_shard.get(shard)
        until = LogPosition.parse(last)
        at = LogPosition.parse(start[shard]) if shard in start else None
        if manifest is None or until > manifest.end.order:
            if at == until:
                continue
            raise ArchiveError(
                f"the archive does not reach up to {last}, which a query has read before",
                shard=shard,
                hint="the checkpoint belongs to another archive, or this one was restored from an older backup",
            )
        after = manifest.begin.order if at is None else at
        if after == until:
            continue
        if not skip_gaps:
            _refuse_gaps(manifest, after, until)
        # Rows that a backfill read at a place are read with the rows after that place. Until such rows exist, more
        # backfilled rows may be archived there, and a batch that is planned again has to have the same rows.
        low, high = before_reads(after), before_reads(until)
        found += [FilePiece(shard, entry, low, high) for entry in manifest.files if _between(entry, after, until)]
    return found


def _between(entry: FileEntry, after: LogPosition, until: LogPosition) -> bool:
    goes_on = entry.end.order > after or (entry.end.order == after and bool(entry.ops.get(Op.READ.value)))
    return bool(entry.rows) and goes_on and entry.begin.order < until


def _refuse_gaps(manifest: Manifest, after: LogPosition, until: LogPosition) -> None:
    if manifest.begin.order > after:
        raise ArchiveError(
            (
                f"the archive begins at {manifest.begin.order} now: what follows {after} was let go before this query "
                "read it"
            ),
            shard=manifest.shard,
            hint=(
                'start the query with a new checkpoint, or with gaps="skip" to go on behind; a longer `keep` '
                "prevents it"
            ),
            code="archive-lacks-range",
        )
    for loss in manifest.losses:
        if after < loss.resume.order <= until:
            raise ArchiveError(
                f"updates before {loss.resume.order} never came into the archive: {loss.message}",
                shard=manifest.shard,
                hint='start the query with gaps="skip" to go on behind',
                code="archive-lacks-range",
            )
