"""Writes one data file of the archive; :mod:`spark_replay.archive.shard_writer` commits it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_replay.archive.arrays import U64, count_values, values_of
from spark_replay.archive.checksums import SummingSink
from spark_replay.archive.columns import METADATA_KEY, PLACE_BYTES, SCHEMA, position_of
from spark_replay.archive.footer import Footer, crc_of_footer, footer_to_bytes
from spark_replay.archive.kernel import grouped
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import upto
from wormhole.model.errors import ArchiveError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.wire.tally import tally_columns, total

__all__ = ["DataFileWriter", "FileWriter", "parquet_settings"]


def parquet_settings() -> dict[str, Any]:
    """The settings of archive files: keywords of ``pyarrow.parquet.ParquetWriter`` beside file and schema.

    Only columns with few distinct values get a dictionary. A dictionary of places or updates would take memory and save
    nothing.
    """
    return {
        "compression": "zstd",
        "use_dictionary": ["tx_source", "op", "table", "schema_id"],
        "write_statistics": ["place", "committed_at", "tx_number", "op", "table"],
        # An open file has a buffer of this size for each column, and an archiver has an open file for each shard.
        # Smaller buffers are faster too.
        "data_page_size": 128 << 10,
        "version": "2.6",
        # For readers without manifests. Without it neither Parquet nor zstd notices a flipped bit.
        "write_page_checksum": True,
    }


class FileWriter(pq.ParquetWriter):  # type: ignore[misc]
    """A writer of Parquet whose file can be aborted."""

    def __del__(self) -> None:
        """Leave an aborted file as it is. pyarrow would finish it, and complain that its sink is closed."""


class DataFileWriter:
    """Writes rows of one shard that begin at ``begin`` into ``sink``. ``name``: the file's name in the manifest.

    Every :meth:`write` makes a row group. Methods block, and raise what the sink raises (``OSError``).
    """

    def __init__(self, sink: BinaryIO, name: str, *, dataset: str, shard: str, epoch: int, begin: Datamarker) -> None:
        self._sink = SummingSink(sink)
        self._name = name
        self._about = (dataset, shard, epoch, begin)
        self._writer = FileWriter(self._sink, SCHEMA, **parquet_settings())
        self._markers: list[Datamarker] = []
        self._schemas: dict[int, Schema] = {}
        self._ops: Counter[str] = Counter()
        self._tables: Counter[str] = Counter()
        self._key_changes = self._partial = self._hash = 0
        self._first_us = self._last_us = 0
        self._too_large = self._raw = 0
        self._last = b""
        self.rows = 0
        """Rows written so far."""

    def write(self, rows: pa.RecordBatch, schemas: Mapping[int, Schema], too_large: int = 0) -> None:
        """Append rows, which come after all earlier ones. ``schemas``: at least the schemas of the rows, by id.
        ``too_large``: how many rows came without values because of their size.
        """
        if not rows.num_rows:
            return
        self._writer.write_batch(rows, row_group_size=rows.num_rows)
        self.rows += rows.num_rows
        self._last = rows.column("place")[-1].as_py()
        self._too_large += too_large
        self._raw += rows.nbytes
        ids = (number & U64 for number in pc.unique(rows.column("schema_id")).to_pylist())
        self._schemas.update((id_, schemas[id_]) for id_ in ids)
        count_values(self._ops, rows.column("op"))
        count_values(self._tables, rows.column("table"))
        old_keys = rows.column("old_key")
        self._key_changes += len(old_keys) - old_keys.null_count
        self._partial += pc.sum(rows.column("partial")).as_py()
        self._hash = (self._hash + _hash(rows)) & U64
        span = pc.min_max(rows.column("committed_at").cast(pa.int64()))
        if span["min"].is_valid:
            first, last = span["min"].as_py(), span["max"].as_py()
            self._first_us = min(self._first_us or first, first)
            self._last_us = max(self._last_us, last)

    def mark(self, marker: Datamarker) -> None:
        """Add a datamarker of the publisher: all rows so far are before it, all later ones after it.

        A backfill has several datamarkers at one place. The last one is kept.
        """
        if self._markers and self._markers[-1].order == marker.order:
            self._markers.pop()
        self._markers.append(marker)

    def finish(self, end: Datamarker) -> FileEntry:
        """Write the footer and return the file's entry for the manifest. The sink stays open.

        The file ends at ``end``, which becomes its last datamarker. Raises
        :class:`~wormhole.model.errors.ArchiveError` for rows after ``end``, because no reader would look for them in
        this file.
        """
        dataset, shard, epoch, begin = self._about
        if self._last > upto(end):
            raise ArchiveError(
                f"updates came that lie behind the datamarker after them, {end.order}: up to {position_of(self._last)}",
                shard=shard,
                hint="bring the publisher to this release; nothing is acknowledged, and the log keeps them",
            )
        inner = tuple(marker for marker in self._markers if begin.order < marker.order < end.order)
        footer = Footer(dataset, shard, epoch, begin, end, (*inner, end), self._schemas)
        self._writer.add_key_value_metadata({METADATA_KEY: footer_to_bytes(footer)})
        self._writer.close()
        return FileEntry(
            name=self._name,
            rows=self.rows,
            bytes=self._sink.written,
            begin=begin,
            end=end,
            first_us=self._first_us,
            last_us=self._last_us,
            ops=dict(self._ops),
            tables=dict(self._tables),
            schemas={f"{id_:016x}": schema.table for id_, schema in self._schemas.items()},
            key_changes=self._key_changes,
            partial=self._partial,
            too_large=self._too_large,
            hash=self._hash,
            footer_crc=crc_of_footer(self._writer.writer.metadata),
            raw=self._raw,
            blocks=self._sink.blocks(),
        )


def _hash(rows: pa.RecordBatch) -> int:
    """See :mod:`wormhole.wire.tally`."""
    places = values_of(rows.column("place"), "B", PLACE_BYTES)
    numbers = values_of(rows.column("tx_number"), "q")
    source = rows.column("tx_source")
    sources = values_of(source.indices, "i")
    indexes = values_of(rows.column("tx_index"), "i")
    firsts, counting, scattered = grouped(places, numbers, sources, indexes, 0, rows.num_rows, False)
    ends = firsts[1:]
    ends.append(rows.num_rows)
    found = tally_columns(
        source.dictionary.to_pylist(),
        array("I", [sources[i] for i in firsts]),
        array("Q", [numbers[i] & U64 for i in firsts]),
        array("q", (0,)),
        ends,
        array("I") if counting else scattered,
        scattered[0],
        rows.num_rows,
    )
    return total(found).hash
