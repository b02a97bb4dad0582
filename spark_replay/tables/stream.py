"""The archive as a streaming source of Spark: what manifests name, each update once.

An offset is a place in each shard: up to there everything was read. Which files hold what lies between two offsets is
looked up in the newest manifests each time, so that files which were merged meanwhile, or a restart from a checkpoint,
change nothing about the rows. Only rows that a backfill read at an offset's place may come twice: it does not say which
of them were read. This module imports PySpark: others import it when they need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from spark_replay.archive.columns import before_reads
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.frames import PLAIN, plain_rows
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import select
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.values import Op

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["FORMAT_NAME", "ArchiveStream", "Piece", "next_offset", "pieces", "stream"]

FORMAT_NAME: Final = "wormhole_archive"
_MOST_FILES: Final = 64  # of a shard in one batch, so that the first does not hold the whole archive


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

    ``start``: where a query without a checkpoint begins, ``earliest`` or ``latest``. ``max_files``: of each shard in
    one batch. ``gaps``: what becomes of a query that comes to updates which the archive lost (retention, a gap in the
    log): ``refuse`` ends it with an error that says what is missing, ``skip`` goes on behind. Columns are those of the
    tables at the start: a query ends with an error when a table it reads changes, and goes on when it is started again.
    Raises :class:`~wormhole.model.errors.UsageError`.
    """
    options = {
        "to": store.to,
        "dataset": store.dataset,
        "start": start,
        "max_files": str(max_files),
        "gaps": gaps,
    }
    _Options.read(options)
    spark.dataSource.register(ArchiveStream)
    return attach(spark.readStream.format(FORMAT_NAME).options(**options).load(), select(store).schemas)


@dataclass(frozen=True, slots=True)
class _Options:
    to: str
    dataset: str
    start: str
    max_files: int
    gaps: str

    @classmethod
    def read(cls, given: Mapping[str, str]) -> _Options:
        """Raises :class:`~wormhole.model.errors.UsageError`."""
        start, files, gaps = (
            given.get("start", "earliest"),
            given.get("max_files", str(_MOST_FILES)),
            given.get("gaps", "refuse"),
        )
        if start not in ("earliest", "latest"):
            raise UsageError(f"start is {start!r}", hint='write "earliest" or "latest"')
        if gaps not in ("refuse", "skip"):
            raise UsageError(f"gaps is {gaps!r}", hint='write "refuse" or "skip"')
        if not files.isdecimal() or int(files) < 1:
            raise UsageError(f"max_files is {files!r}", hint="write a number of files, at least 1")
        return cls(given["to"], given["dataset"], start, int(files), gaps)


class ArchiveStream(DataSource):
    """The data source that :func:`stream` registers."""

    @classmethod
    def name(cls) -> str:
        """How Spark calls it."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """The archive's columns and ``shard``."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(PLAIN)

    def streamReader(self, schema: StructType) -> ArchiveStreamReader:  # noqa: N802  # Spark's name
        """What reads it."""
        return ArchiveStreamReader(_Options.read(dict(self.options)))


class Piece(InputPartition):
    """The rows of one file with ``after < place <= until``; what one task reads."""

    def __init__(self, shard: str, entry: FileEntry, after: bytes, until: bytes) -> None:
        super().__init__((shard, entry.name, after, until))
        self.shard, self.entry, self.after, self.until = shard, entry, after, until


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{shard: place}``, places as text."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._store = open_store(options.to, options.dataset)
        self._target: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's names, here and below
        """Where a query without a checkpoint begins."""
        latest = self._options.start == "latest"
        return {one.shard: str(one.end.order if latest else one.begin.order) for one in self._manifests()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much goes into one batch."""
        return ReadMaxFiles(self._options.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends where the archive ends now."""
        self._target = {one.shard: str(one.end.order) for one in self._manifests()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """Up to where the next batch reads."""
        most = None if isinstance(limit, ReadAllAvailable) else self._options.max_files
        return next_offset(self._manifests(), start, most, self._target)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[Piece]:
        """What lies between two offsets.

        Raises :class:`~wormhole.model.errors.ArchiveError` for what the archive does not hold any more.
        """
        return pieces(self._manifests(), start, end, skip_gaps=self._options.gaps == "skip")

    def read(self, partition: Piece) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of one piece."""
        with open_file(self._store, partition.shard, partition.entry) as file:
            for batch in file.batches(partition.after, partition.until):
                yield plain_rows(batch, partition.shard)

    def _manifests(self) -> list[Manifest]:
        return [one for shard in self._store.shards() if (one := self._store.read(shard)) is not None]


def next_offset(
    manifests: list[Manifest], start: Mapping[str, str], max_files: int | None, target: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The offset behind at most ``max_files`` further files of each shard, and not behind ``target``. A shard that was
    not there yet is read from where it begins; one that went keeps its place.
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
) -> list[Piece]:
    """The files, and which of their rows, that lie between two offsets. Raises
    :class:`~wormhole.model.errors.ArchiveError` where something is missing in between, unless ``skip_gaps``.
    """
    by_shard = {manifest.shard: manifest for manifest in manifests}
    found: list[Piece] = []
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
        # Rows that a backfill read at a place come with what follows it. Until then more of them may come there, and a
        # batch that is planned again has to have the same rows.
        low, high = before_reads(after), before_reads(until)
        found += [Piece(shard, entry, low, high) for entry in manifest.files if _between(entry, after, until)]
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
        )
    for loss in manifest.losses:
        if after < loss.resume.order <= until:
            raise ArchiveError(
                f"updates before {loss.resume.order} never came into the archive: {loss.message}",
                shard=manifest.shard,
                hint='start the query with gaps="skip" to go on behind',
            )
