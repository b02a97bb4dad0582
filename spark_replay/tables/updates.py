"""The updates of a snapshot, as a replay reads them: files of which every byte is compared with what was written.

Spark writes them, so their checksums are taken, and the rows of each table counted, by reading them once more;
``snapshot.json`` keeps both.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_replay.archive.checksums import Blocks, CheckedSource, blocks_of
from spark_replay.archive.storage import Storage
from spark_replay.selected import PLAIN, TYPES
from wormhole.model.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "UPDATES",
    "TableRows",
    "UpdatesFile",
    "file_from_json",
    "file_rows",
    "file_to_json",
    "read_updates",
    "summed",
]

UPDATES: Final = "updates"
"""The folder within a snapshot that they lie in."""

_SHAPE: Final = f"{TYPES}, shard string"
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class UpdatesFile:
    """One Parquet file; ``path``: within the snapshot's storage."""

    path: str
    bytes: int
    blocks: Blocks


def file_to_json(file: UpdatesFile) -> dict[str, Any]:
    """As ``snapshot.json`` has it."""
    crcs = base64.b64encode(file.blocks.crcs).decode()
    return {"path": file.path, "bytes": file.bytes, "block_bytes": file.blocks.size, "block_crcs": crcs}


def file_from_json(given: Mapping[str, Any]) -> UpdatesFile:
    """Inverse of :func:`file_to_json`. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    blocks = Blocks(int(given["block_bytes"]), base64.b64decode(given["block_crcs"], validate=True))
    return UpdatesFile(str(given["path"]), int(given["bytes"]), blocks)


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table in the files: how many, how many of them ``lack`` values, and the ids of their
    ``schemas``."""

    rows: int = 0
    lack: int = 0
    schemas: frozenset[int] = frozenset()

    def __add__(self, other: TableRows) -> TableRows:
        return TableRows(self.rows + other.rows, self.lack + other.lack, self.schemas | other.schemas)


def summed(spark: SparkSession, storage: Storage, folder: str) -> tuple[list[UpdatesFile], dict[str, TableRows]]:
    """The Parquet files of a folder with their checksums, and what they hold of each table. Each is read by a task of
    its own."""
    paths = [f"{folder}/{one.name}" for one in storage.files(folder) if one.name.endswith(".parquet")]
    tasks = spark.sparkContext.parallelize(paths, max(1, len(paths)))
    files: list[UpdatesFile] = []
    held: dict[str, TableRows] = {}
    for file, tables in tasks.map(partial(_summed, storage)).collect():
        files.append(file)
        for table, some in tables.items():
            held[table] = held.get(table, TableRows()) + some
    return files, held


def _summed(storage: Storage, path: str) -> tuple[UpdatesFile, dict[str, TableRows]]:
    with storage.open_input(path) as source:
        size = source.size()
        file = UpdatesFile(path, size, blocks_of(source, size))
        held: dict[str, TableRows] = {}
        parquet = pq.ParquetFile(source)
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, columns=["table", "schema_id", "partial"])
            found = rows.group_by(["table", "schema_id"]).aggregate([([], "count_all"), ("partial", "sum")])
            for one in found.to_pylist():
                some = TableRows(one["count_all"], one["partial_sum"], frozenset({one["schema_id"] & _MASK}))
                held[one["table"]] = held.get(one["table"], TableRows()) + some
        return file, held


def read_updates(spark: SparkSession, storage: Storage, files: Sequence[UpdatesFile], **only: str) -> DataFrame:
    """The rows of these files: the archive's columns and ``shard``, in no order. A task for each file. ``only``:
    columns of text and the value
    that the rows have there.

    A damaged file shows when Spark reads it, see :func:`spark_replay.frames.reading`.
    """
    if not files:
        return spark.createDataFrame([], _SHAPE)
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(_Reading(storage, tuple(files), only), _SHAPE)


@dataclass(frozen=True)
class _Reading:
    """What runs on the executors: numbers of files become their rows."""

    storage: Storage
    files: tuple[UpdatesFile, ...]
    only: Mapping[str, str]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from file_rows(self.storage, self.files[number], **self.only)


def file_rows(storage: Storage, file: UpdatesFile, **only: str) -> Iterator[pa.RecordBatch]:
    """The rows of one file, compared with its checksums. ``only``: as of :func:`read_updates`.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a damaged one.
    """
    path = storage.path(file.path)
    with storage.open_input(file.path) as source:
        try:
            if (size := source.size()) != file.bytes:
                raise ValueError(f"it has {size:,} bytes, snapshot.json says {file.bytes:,}")
            checked = pa.PythonFile(CheckedSource(source, size, file.blocks), mode="r")
            parquet = pq.ParquetFile(checked, coerce_int96_timestamp_unit="us")
            for group in range(parquet.num_row_groups):
                if _may_hold(parquet.metadata.row_group(group), only):
                    yield from _of_group(parquet.read_row_group(group), only)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ArchiveError(
                f"{path} cannot be read as a part of the snapshot: {error}",
                hint="write the snapshot anew (`wormholectl snapshot`), or replay without --snapshot",
            ) from error


def _may_hold(group: Any, only: Mapping[str, str]) -> bool:
    for name, value in only.items():
        statistics = group.column(PLAIN.get_field_index(name)).statistics
        known = statistics is not None and statistics.has_min_max
        if known and not statistics.min <= value <= statistics.max:
            return False
    return True


def _of_group(rows: pa.Table, only: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for name, value in only.items():
        rows = rows.filter(pc.equal(rows.column(name), value))
    for batch in rows.combine_chunks().to_batches():
        columns = [_plain(batch.column(field.name), field.type) for field in PLAIN]
        yield pa.RecordBatch.from_arrays(columns, schema=PLAIN)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = column.cast(pa.timestamp("us")).view(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return column.cast(kind)
