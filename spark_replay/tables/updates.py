"""Writes the files of a snapshot, and reads its updates while it verifies the checksums of all bytes.

While a file is written, its checksums are computed and the rows of each table are counted. ``snapshot.json`` has both.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_replay.archive.arrays import U64, grouped
from spark_replay.archive.checksums import Blocks, CheckedSource, SummingSink
from spark_replay.archive.storage import Storage, storage_errors
from spark_replay.archive.writer import FileWriter
from spark_replay.selected import PLAIN, TYPES
from spark_replay.spark.portions import read_portions
from wormhole.model.errors import ArchiveError, WormholeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "UPDATES",
    "TableRows",
    "UpdatesFile",
    "WrittenFile",
    "file_from_json",
    "file_rows",
    "file_to_json",
    "read_updates",
    "write_rows",
]

UPDATES: Final = "updates"
"""The folder of the updates within a snapshot."""

_SHAPE: Final = f"{TYPES}, shard string"
_ROW_GROUP: Final = 8 << 20  # bytes; a task of a replay has this many in memory at a time


@dataclass(frozen=True, slots=True)
class UpdatesFile:
    """One Parquet file. ``path``: within the snapshot's storage."""

    path: str
    bytes: int
    blocks: Blocks


def file_to_json(file: UpdatesFile) -> dict[str, Any]:
    """The file as in ``snapshot.json``."""
    crcs = base64.b64encode(file.blocks.crcs).decode()
    return {"path": file.path, "bytes": file.bytes, "block_bytes": file.blocks.size, "block_crcs": crcs}


def file_from_json(given: Mapping[str, Any]) -> UpdatesFile:
    """Inverse of :func:`file_to_json`. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    blocks = Blocks(int(given["block_bytes"]), base64.b64decode(given["block_crcs"], validate=True))
    return UpdatesFile(str(given["path"]), int(given["bytes"]), blocks)


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table in files. ``rows``: their number. ``lack``: how many of them lack values. ``schemas``: the
    ids of their schemas."""

    rows: int = 0
    lack: int = 0
    schemas: frozenset[int] = frozenset()

    def __add__(self, other: TableRows) -> TableRows:
        return TableRows(self.rows + other.rows, self.lack + other.lack, self.schemas | other.schemas)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written. ``tables``: the rows of each table, if the file has updates."""

    file: UpdatesFile
    rows: int
    tables: Mapping[str, TableRows]


def write_rows(storage: Storage, folder: str, shape: pa.Schema, batches: Iterable[pa.RecordBatch]) -> WrittenFile:
    """Write a file with the columns of ``shape``, complete and durable, with a new name in ``folder``.

    A failure leaves no file. Raises what ``batches`` and the storage raise.
    """
    path = f"{folder}/{secrets.token_hex(16)}.parquet"
    where = storage.path(path)
    tables: dict[str, TableRows] = {}
    rows = 0
    with storage.open_output(path) as stream:
        sink = SummingSink(stream)
        try:
            with storage_errors("write", where):
                writer = FileWriter(sink, shape, compression="zstd", write_page_checksum=True)
            for found in grouped((batch.select(shape.names).cast(shape) for batch in batches), _ROW_GROUP):
                group = pa.Table.from_batches(found)
                rows += group.num_rows
                if shape.equals(PLAIN):
                    _count(tables, group)
                with storage_errors("write", where):
                    writer.write_table(group, row_group_size=group.num_rows)
            with storage_errors("write", where):
                writer.close()
                stream.close()
        except BaseException:
            with suppress(OSError, WormholeError):
                stream.close()
            with suppress(OSError, WormholeError):
                storage.delete(path)
            raise
    storage.settle(path)
    return WrittenFile(UpdatesFile(path, sink.written, sink.blocks()), rows, tables)


def _count(tables: dict[str, TableRows], rows: pa.Table) -> None:
    """Add the rows of each table to ``tables``."""
    found = rows.group_by(["table", "schema_id"]).aggregate([([], "count_all"), ("partial", "sum")])
    for one in found.to_pylist():
        some = TableRows(one["count_all"], one["partial_sum"], frozenset({one["schema_id"] & U64}))
        tables[one["table"]] = tables.get(one["table"], TableRows()) + some


def read_updates(spark: SparkSession, storage: Storage, files: Sequence[UpdatesFile], **only: str) -> DataFrame:
    """The rows of these files: the archive's columns and ``shard``, in no order. Each file is one task. ``only``:
    columns of text with the value that the rows must have.

    A damaged file is found when Spark reads it; see :func:`spark_replay.frames.reading`.
    """
    return read_portions(spark, files, lambda file: file_rows(storage, file, **only), _SHAPE)


def file_rows(storage: Storage, file: UpdatesFile, **only: str) -> Iterator[pa.RecordBatch]:
    """The rows of one file, compared with its checksums. ``only``: see :func:`read_updates`.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a damaged file.
    """
    path = storage.path(file.path)
    with storage.open_input(file.path) as source:
        try:
            if (size := source.size()) != file.bytes:
                raise ValueError(f"it has {size:,} bytes, snapshot.json records {file.bytes:,}")
            checked = pa.PythonFile(CheckedSource(source, size, file.blocks), mode="r")
            parquet = pq.ParquetFile(checked, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            for group in range(parquet.num_row_groups):
                if _may_hold(parquet.metadata.row_group(group), only):
                    yield from _of_group(parquet.read_row_group(group), only)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ArchiveError(
                f"{path} cannot be read as a part of the snapshot: {error}",
                hint="write the snapshot anew (`wormholectl snapshot`), or replay without --snapshot",
                code="snapshot-unusable",
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
