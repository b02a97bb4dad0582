"""Reads and writes the data files of an open table, through pyarrow, on the executors."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_replay.archive.arrays import grouped, signed
from spark_replay.archive.storage import storage_errors
from spark_replay.export.columns import row_values
from spark_replay.export.port import NewTableFile
from spark_replay.selected import PLAIN
from spark_replay.spark.portions import taken
from spark_replay.tables.columns import TableColumn, converter
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import decode_key, encode_key, encode_row

__all__ = ["WRITTEN", "AsUpdates", "FileRows", "KeyRows", "TableFileWriter", "new_files"]

WRITTEN: Final = "path string, rows bigint, size bigint, footer binary"
"""The columns that :class:`TableFileWriter` returns for each file."""
_FILE_BYTES: Final = 256 << 20
_GROUP_BYTES: Final = 32 << 20  # in memory
_BATCH_ROWS: Final = 4096
_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class KeyRows:
    """Decodes shards and keys of the archive to rows of typed columns. ``shape``: shard, key and these columns."""

    kinds: tuple[str, ...]
    shape: pa.Schema

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        convert = [converter(kind) for kind in self.kinds]
        for batch in given:
            keys = [decode_key(key) for key in batch.column(1).to_pylist()]
            columns: list[Any] = [batch.column(0), batch.column(1)]
            for i, one in enumerate(convert):
                columns.append(pa.array([one(key[i]) for key in keys], self.shape.field(i + 2).type))
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(columns, self.shape, strict=True)], schema=self.shape
            )


@dataclass(frozen=True)
class FileRows:
    """Reads numbered files as rows with the columns of ``shape``. The last column, ``_file``, is the file's number.

    A file may lack columns that were added after it was written.
    """

    filesystem: fs.FileSystem
    shape: pa.Schema

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, path in taken(given):
            yield from self._rows(number, path)

    def _rows(self, number: int, path: str) -> Iterator[pa.RecordBatch]:
        with storage_errors("read", path), self.filesystem.open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            there = set(parquet.schema_arrow.names)
            wanted = [field for field in self.shape if field.name != "_file"]
            names = [field.name for field in wanted if field.name in there]
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=[field.name for field in wanted]):
                count = batch.num_rows
                columns = [
                    batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(count, field.type)
                    for field in wanted
                ]
                yield pa.RecordBatch.from_arrays([*columns, pa.repeat(pa.scalar(number), count)], schema=self.shape)


@dataclass(frozen=True)
class AsUpdates:
    """Turns rows of the table into archive rows that create them, with a place before all archived rows of their shard.

    ``_key``: the key as in the archive, if it is known.
    """

    schema: Schema
    columns: tuple[TableColumn, ...]

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.columns]
        at = [names.index(column.name) for column in self.schema.key]
        number = signed(self.schema.id)
        for batch in given:
            rows = [self._row(row, at, number) for row in batch.to_pylist()]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=PLAIN)

    def _row(self, row: Mapping[str, Any], at: Sequence[int], number: int) -> dict[str, Any]:
        values = row_values(row, self.columns)
        key = [values[i] for i in at]
        return {
            "place": b"",
            "tx_source": "",
            "tx_number": 0,
            "tx_index": 0,
            "ends_tx": True,
            "committed_at": None,
            "op": Op.UPSERT.value,
            "table": self.schema.table,
            "key": row["_key"] if row["_key"] is not None else encode_key(key),
            "old_key": None,
            "schema_id": number,
            "partial": any(value is UNAVAILABLE for value in values),
            "update": encode_row(Op.UPSERT, key, after=values),
            "shard": row["_shard"],
        }


@dataclass(frozen=True)
class TableFileWriter:
    """Writes rows to new files of ``shape`` in ``folder``, each with a name of its own.

    No commit names the files of an attempt that did not finish.
    """

    filesystem: fs.FileSystem
    folder: str
    shape: pa.Schema

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = map(pa.Table.from_batches, grouped(given, _GROUP_BYTES))
        first = next(rows, None)
        while first is not None:
            path = f"{self.folder}/{secrets.token_hex(16)}.parquet"
            with storage_errors("write", path):
                written, first = self._write(path, first, rows)
            yield pa.RecordBatch.from_pylist([written])

    def _write(self, path: str, first: pa.Table, rows: Iterator[pa.Table]) -> tuple[dict[str, Any], pa.Table | None]:
        following: pa.Table | None = first
        count, footer = 0, io.BytesIO()
        footers: list[Any] = []
        with self.filesystem.open_output_stream(path) as sink:
            with pq.ParquetWriter(sink, self.shape, compression="zstd", metadata_collector=footers) as writer:
                while following is not None and sink.tell() < _FILE_BYTES:
                    writer.write_table(_fitted(following, self.shape), row_group_size=following.num_rows)
                    count += following.num_rows
                    following = next(rows, None)
            size = sink.tell()
        footers[0].write_metadata_file(footer)
        return {"path": path, "rows": count, "size": size, "footer": footer.getvalue()}, following


def _fitted(table: pa.Table, shape: pa.Schema) -> pa.Table:
    """The columns by name, as the fields that the format requires."""
    return pa.Table.from_arrays([table.column(field.name).cast(field.type) for field in shape], schema=shape)


def new_files(written: Iterable[Any]) -> tuple[NewTableFile, ...]:
    """The new files, from the rows that the driver collected."""
    return tuple(NewTableFile(one.path, one.rows, one.size, bytes(one.footer)) for one in written)
