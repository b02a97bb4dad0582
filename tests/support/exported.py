"""Open tables in tests: both formats in a folder, and the job without Spark, of the same parts as with it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from spark_replay.export.columns import base_schema
from spark_replay.export.delta import OpenDeltaTable
from spark_replay.export.exporter import Exporter
from spark_replay.export.files import AsUpdates, FileRows, TableFileWriter
from spark_replay.export.iceberg import OpenIcebergTable
from spark_replay.export.job import ChangedRows, Work
from spark_replay.export.port import NewTableFile, OpenTable, TableFile, table_shape
from spark_replay.selected import COLUMNS, PLAIN, plain_rows
from spark_replay.tables.history import _Task
from spark_replay.tables.names import folder_name
from spark_replay.tables.rows import Decoding
from spark_replay.tables.versions import Barriers, EndedVersion
from wormhole.model.values import Op

ENDING = (Op.TRUNCATE.value, Op.DELETE_RANGE.value)


def local_job(work: Work) -> ChangedRows:
    """What :func:`spark_replay.export.job.run` does, in this process. Range deletes and links are left to Spark."""
    changes = list(_archived(work))
    if not work.files:
        return ChangedRows(_written(work, _folded(work, changes), []), ())
    before = _table_rows(work, work.files)
    keys = {(row["shard"], row[name]) for row in changes for name in ("key", "old_key") if row[name] is not None}
    everything = work.rewrites or any(row["op"] in ENDING for row in changes)
    hit = sorted({number for number, row, _ in before if everything or (row["shard"], row["key"]) in keys})
    if everything:
        hit = list(range(len(work.files)))
    base = [row for number, row, _ in before if everything or (row["shard"], row["key"]) in keys]
    kept = [cells for number, row, cells in before if number in hit and row not in base]
    return ChangedRows(_written(work, _folded(work, base + changes), kept), tuple(work.files[i] for i in hit))


def _archived(work: Work) -> Iterator[dict[str, Any]]:
    for one in work.ranges:
        for entry in one.files:
            with open_file(work.store, one.shard, entry) as file:
                for batch in file.batches(*one.bounds, COLUMNS):
                    batch = batch.filter(pc.equal(batch.column("table").cast(pa.string()), work.table))
                    yield from plain_rows(batch, one.shard).to_pylist()


def _table_rows(work: Work, files: tuple[TableFile, ...]) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Number of the file, the row as an update, and as the table has it."""
    shape = pa.schema([*table_shape(work.before), pa.field("_file", pa.int32())])
    read = FileRows(work.filesystem, shape)
    portions = [pickle.dumps((number, file.path)) for number, file in enumerate(files)]
    as_updates = AsUpdates(base_schema(work.table, work.key, work.before), work.before)
    found = []
    for batch in read([pa.RecordBatch.from_pydict({"portion": portions})]):
        keyed = batch.append_column("_key", pa.nulls(batch.num_rows, pa.binary()))
        updates = [row for each in as_updates([keyed]) for row in each.to_pylist()]
        for cells, row in zip(batch.to_pylist(), updates, strict=True):
            found.append((cells.pop("_file"), row, cells))
    return found


def _folded(work: Work, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    schemas = (base_schema(work.table, work.key, work.before), *work.schemas)
    barriers: dict[tuple[str, str], Barriers] = {}
    for row in rows:
        if row["op"] == Op.TRUNCATE.value:
            kept = barriers.setdefault((row["shard"], work.table), Barriers())
            kept.truncates.append(EndedVersion(row["place"], row["committed_at"], row["op"]))
    for one in barriers.values():
        one.sort()
    rest = [row | {"_group": b"", "_left": False} for row in rows if row["op"] not in ENDING]
    rest.sort(key=lambda row: (row["shard"], row["place"]))
    task = _Task(schemas, barriers, frozenset(one.shard for one in work.ranges), current=True)
    fields = [*PLAIN, pa.field("_group", pa.binary()), pa.field("_left", pa.bool_())]
    given = [pa.RecordBatch.from_pylist(rest, schema=pa.schema(fields))] if rest else []
    current = (batch.select([*SCHEMA.names, "shard"]) for batch in task.batches(given))
    return Decoding(schemas, work.columns).batches(current)


def _written(work: Work, rows: Iterator[pa.RecordBatch], kept: list[dict[str, Any]]) -> tuple[NewTableFile, ...]:
    names = table_shape(work.columns).names
    given = [batch.select(names) for batch in rows]
    if kept:
        given.append(pa.RecordBatch.from_pylist(kept, schema=table_shape(work.columns)))
    writer = TableFileWriter(work.filesystem, work.folder, work.shape)
    return tuple(NewTableFile(**row) for batch in writer(given) for row in batch.to_pylist())


class Format:
    """One of both formats in ``base``. ``open``: the table of a table of the dataset."""

    def __init__(self, name: str, base: Path, dataset: str = "orders", copy: str = "main") -> None:
        self.name = name
        self.base = base
        (base / "delta").mkdir(parents=True, exist_ok=True)
        self._whose = dataset, copy

    def open(self, table: str) -> OpenTable:
        """See :class:`~spark_replay.export.port.OpenTable`."""
        if self.name == "delta":
            return OpenDeltaTable(str(self.base / "delta"), *self._whose, table)
        return OpenIcebergTable(self.catalogue(), *self._whose, table)

    def catalogue(self, name: str = "lake") -> Catalog:
        """Each has a database of its own, and all one warehouse."""
        where = {"type": "sql", "uri": f"sqlite:///{self.base}/{name}.db", "warehouse": f"file://{self.base}/warehouse"}
        return load_catalog(name, **where)

    def rows(self, table: str, version: str = "") -> pa.Table:
        """What the table has at a version, or now."""
        if self.name == "delta":
            return DeltaTable(
                f"{self.base}/delta/{folder_name(table)}", version=int(version) if version else None
            ).to_pyarrow_table()
        iceberg = self.catalogue().load_table(OpenIcebergTable(self.catalogue(), *self._whose, table).identifier)
        return iceberg.scan(snapshot_id=int(version) if version else None).to_arrow()

    def exporter(self, store: ArchiveStore, **more: Any) -> Exporter:
        """One without Spark, unless ``job`` is given."""
        return Exporter(store, self.open, **({"job": local_job} | more))


FORMATS = ("delta", "iceberg")
