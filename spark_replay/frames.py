"""Rows of the archive as a DataFrame: which files, as manifests say, and which of their rows.

Folders are never listed: a file that no manifest names does not count. Files are chosen by what their entries say
(places, times); of those that a range cuts, the rows outside of it are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import after, open_file, upto
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import ArchiveError, ArchiveUnavailable
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "PLAIN", "TYPES", "ShardFiles", "plain_rows", "read", "reading", "schemas_of", "within_times"]

COLUMNS: Final = tuple(SCHEMA.names)
"""The columns of :mod:`spark_replay.archive.columns`; ``shard`` comes after them."""

PLAIN: Final = pa.schema(
    [
        *(
            pa.field(
                one.name,
                pa.string() if pa.types.is_dictionary(one.type) else pa.binary() if one.name == "place" else one.type,
            )
            for one in SCHEMA
        ),
        pa.field("shard", pa.string()),
    ]
)
"""The columns with their shard, of types that Spark takes from Arrow."""

TYPES: Final = (
    "place binary, tx_source string, tx_number bigint, tx_index int, ends_tx boolean, committed_at timestamp, op "
    "string, "
    "table string, key binary, old_key binary, schema_id bigint, partial boolean, update binary"
)
"""The same, as Spark's types."""
_TASK_BYTES: Final = 8 << 20, 128 << 20
"""Bytes of rows that one task reads: the least, and the most unless one file has more."""
_FILE_BYTES: Final = 1 << 20  # what opening a file counts as
_OURS: Final = re.compile(r"wormhole\.model\.errors\.(ArchiveError|ArchiveUnavailable): (.*)")
_VERIFY: Final = (
    "`wormholectl archive verify --deep` shows every file that is missing or damaged; restore it from a backup"
)


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """What to read of one shard: of ``files``, which adjoin, the updates after ``begin`` up to ``until``; ``None``:
    from the first, to the last.
    """

    shard: str
    files: tuple[FileEntry, ...]
    begin: Datamarker | None = None
    until: Datamarker | None = None

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """Rows with the first < place <= the second are meant."""
        if not self.files:
            return b"", b""
        return after(self.begin or self.files[0].begin), upto(self.until or self.files[-1].end)


def within_times(files: Iterable[FileEntry], since_us: int = 0, until_us: int = 0) -> tuple[FileEntry, ...]:
    """Files that may hold updates committed from ``since_us`` up to, not including, ``until_us``; microseconds since
    1970, 0: no bound.

    One whose updates have no commit times may hold any.
    """
    return tuple(
        entry
        for entry in files
        if not entry.last_us
        or ((not since_us or entry.last_us >= since_us) and (not until_us or entry.first_us < until_us))
    )


def read(
    spark: SparkSession,
    store: ArchiveStore,
    chosen: Sequence[ShardFiles],
    columns: Sequence[str] = COLUMNS,
    table: str = "",
) -> DataFrame:
    """The updates of all these shards: the archive's columns, or those of ``columns``, then ``shard``. In no order.
    ``table``: only its
    updates, from the files that have any.

    Tasks read the files as everything else here does, since Spark's own reader compares neither headers of pages nor
    footers with anything.
    What is wrong with a file shows then, as an error of Spark that names it: within :func:`reading` it is one of ours.
    """
    types = dict(one.split(" ") for one in TYPES.split(", "))
    shape = ", ".join([*(f"`{name}` {types[name]}" for name in columns), "shard string"])
    pieces = [
        _Piece(one.shard, entry, *one.bounds)
        for one in chosen
        for entry in one.files
        if not table or entry.tables.get(table)
    ]
    if not pieces:
        return spark.createDataFrame([], shape)
    tasks = _tasks(pieces, spark.sparkContext.defaultParallelism)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_Reading(store, tasks, tuple(columns), table), shape)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one file with ``after < place <= until``."""

    shard: str
    entry: FileEntry
    after: bytes
    until: bytes


def _tasks(pieces: Sequence[_Piece], slots: int) -> tuple[tuple[_Piece, ...], ...]:
    """What each task reads: files that follow each other, as evenly as files allow."""
    weights = [piece.entry.raw + _FILE_BYTES for piece in pieces]
    least, most = _TASK_BYTES
    enough = min(most, max(least, sum(weights) // max(1, 2 * slots)))
    found: list[list[_Piece]] = []
    size = enough
    for piece, weight in zip(pieces, weights, strict=True):
        if size >= enough:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += weight
    return tuple(map(tuple, found))


@dataclass(frozen=True)
class _Reading:
    """What runs on the executors: rows that are numbers of tasks become the rows that those read."""

    store: ArchiveStore
    tasks: tuple[tuple[_Piece, ...], ...]
    columns: tuple[str, ...]
    table: str = ""

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from self._rows(piece)

    def _rows(self, piece: _Piece) -> Iterator[pa.RecordBatch]:
        try:
            with open_file(self.store, piece.shard, piece.entry) as file:
                for batch in file.batches(piece.after, piece.until, (*self.columns, "table")):
                    if self.table:
                        batch = batch.filter(pc.equal(batch.column("table").cast(pa.string()), self.table))
                    yield plain_rows(batch, piece.shard, self.columns)
        except ArchiveError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            path = self.store.data_path(piece.shard, piece.entry.name)
            raise ArchiveError(f"{path}: the manifest names it, and it is not there", hint=_VERIFY) from error


def plain_rows(batch: pa.RecordBatch, shard: str, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Rows of a file as Spark takes them, with their shard: it knows neither dictionaries nor fixed lengths."""
    found = [batch.column(name).cast(PLAIN.field(name).type) for name in columns]
    fields = [PLAIN.field(name) for name in (*columns, "shard")]
    return pa.RecordBatch.from_arrays([*found, pa.repeat(pa.scalar(shard), batch.num_rows)], schema=pa.schema(fields))


@contextmanager
def reading() -> Iterator[None]:
    """Around what makes Spark read the archive: what a task said of a file becomes its own error again."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        message, _, hint = found[2].partition(". Next: ")  # Spark hands on the text of an exception, nothing else
        kind = ArchiveError if found[1] == "ArchiveError" else ArchiveUnavailable
        raise kind(message, hint=hint or _VERIFY) from error


def schemas_of(store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[int, Schema]:
    """Every schema that the rows refer to, by id as an unsigned number. Opens the footers of so few files as name them
    all.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a file that is missing, foreign, or lacks what its entry
    says.
    """
    found: dict[int, Schema] = {}
    for one in chosen:
        for entry in one.files:
            wanted = {int(given, 16) for given in entry.schemas}
            if wanted <= found.keys():
                continue
            with open_file(store, one.shard, entry) as file:
                found.update(file.footer.schemas)
            if missing := wanted - found.keys():
                raise ArchiveError(
                    f"{entry.name} lacks schema {min(missing):016x}, which its rows refer to",
                    shard=one.shard,
                    hint="`wormholectl archive verify` shows what else is damaged; restore the file from a backup",
                )
    return found
