"""Reads ranges of tables into files, on the executors.

Each task has one connection to the datastore, and reads chunk by chunk as a backfill does: each chunk in one snapshot,
which ends before anything else is done. A chunk's ``not_before`` is the end of the archive, so that the archive gets
every change that the chunk's rows lack. After a failure only the range that was being read is read again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_replay.archive.checksums import blocks_of
from spark_replay.archive.rows import ReadsAt, Rows
from spark_replay.archive.storage import Storage, storage_errors
from spark_replay.archive.store import ArchiveStore
from spark_replay.baseline.work import FOLDER, Done, KeyRange, archive_end, done_path, of_log
from spark_replay.selected import PLAIN, plain_rows
from spark_replay.tables.updates import UpdatesFile
from wormhole.model.errors import ReplayError, SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.reads import read_source
from wormhole.model.schema import Schema
from wormhole.ports.table_source import Chunk, ChunkLimits, TableSource
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.runs import RunsBuilder

__all__ = ["Portion", "Scan", "ScanOutcome", "TableLog", "key_changed", "not_before_of"]

_LIMITS: Final = ChunkLimits()
_END_S: Final = 1.0  # seconds for which the archive's end is cached
_PAUSE_S: Final = 0.5
_ROW_GROUP: Final = 8 << 20
_CHUNK_BITS: Final = 24  # bits of a transaction's number for the number of a chunk in its range
_NOWHERE: Final = LogPosition(0, 0, 0)


@dataclass(frozen=True, slots=True)
class TableLog:
    """One log of the dataset. ``open``: opens its tables for one thread; its argument is an empty folder of its own. It
    is sent to the executors, and raises :class:`~wormhole.model.errors.WormholeError`.
    """

    name: str
    open: Callable[[Path], TableSource]


@dataclass(frozen=True, slots=True)
class ScanOutcome:
    """The result of a task. ``problem``: why it did not read everything. ``table``: the table that can no longer be
    read; empty: the problem ends the baseline.
    """

    problem: Problem = NO_PROBLEM
    table: str = ""


def not_before_of(store: ArchiveStore, log: str, begin: Datamarker) -> Datamarker:
    """The end of the log's archive.

    Raises :class:`~wormhole.model.errors.ReplayError` if it continued in another history of the log since ``begin``,
    and what the store raises.
    """
    end = archive_end(
        manifest for shard in store.shards() if of_log(log, shard) and (manifest := store.head(shard)) is not None
    )
    if end is None or end.order.incarnation != begin.order.incarnation:
        raise ReplayError(
            f"the log {log} went on in another history while its tables were read: it was at {begin.order}, and is at "
            f"{end.order if end else 'no place'}",
            hint="the database was restored, or another server took over: begin the baseline in another folder",
        )
    return max(end, begin, key=lambda one: one.order)


@dataclass(frozen=True, slots=True)
class Portion:
    """The ranges of one ``log`` that one task reads. ``fingerprints``: the fingerprints of the tables' keys, by
    table.
    """

    log: str
    ranges: tuple[KeyRange, ...]
    fingerprints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads the ranges of a portion that were not read yet. Runs on the executors.

    ``storage``: the storage of the snapshot. ``begins``: by log, as in the plan. ``scan``: the number in the ids of the
    rows. ``patience_s``: seconds without a chunk after which a task gives up.
    """

    logs: Mapping[str, TableLog]
    store: ArchiveStore
    storage: Storage
    begins: Mapping[str, Datamarker]
    scan: int
    patience_s: float

    def __call__(self, portion: Portion) -> ScanOutcome:
        """Read a portion. A problem is returned, not raised, because Spark passes on only the text of an exception."""
        table = ""
        try:
            with TemporaryDirectory() as folder:
                tables = self.logs[portion.log].open(Path(folder))
                try:
                    reader = _Reader(self, portion, tables)
                    for one in portion.ranges:
                        table = one.table
                        reader.read(one)
                finally:
                    tables.close()
        except UnreadableTable as error:
            return ScanOutcome(error.problem, table)
        except WormholeError as error:
            return ScanOutcome(error.problem)
        return ScanOutcome()


class _Reader:
    def __init__(self, scan: Scan, portion: Portion, tables: TableSource) -> None:
        self._scan = scan
        self._portion = portion
        self._tables = tables
        self._checked = False
        self._end = scan.begins[portion.log]
        self._looked_at = -_END_S

    def read(self, range_: KeyRange) -> None:
        storage, path = self._scan.storage, done_path(range_.number)
        if storage.read(path) is not None:
            return
        file = _RowsFile(storage, range_, self._scan.scan, self._tables.shard_of)
        try:
            for chunk, not_before in self._chunks(range_):
                file.add(chunk, not_before)
            done = file.finish()
        except BaseException:
            file.abort()
            raise
        if not storage.create_if_absent(path, done.to_json()):
            file.abort()  # an attempt that Spark had given up stored the range first

    def _chunks(self, range_: KeyRange) -> Iterable[tuple[Chunk, Datamarker]]:
        after = range_.after
        while True:
            chunk, not_before = self._chunk(range_, after)
            yield chunk, not_before
            if chunk.done:
                return
            after = chunk.last

    def _chunk(self, range_: KeyRange, after: bytes | None) -> tuple[Chunk, Datamarker]:
        """The next chunk. Repeats the request while the datastore refuses it for a cause that passes."""
        deadline = time.monotonic() + self._scan.patience_s
        limits = _LIMITS
        while True:
            try:
                self._check()
                not_before = self._not_before()
                if range_.keys:
                    return self._tables.rows(range_.table, range_.keys, not_before), not_before
                chunk = self._tables.chunk(range_.table, after, range_.until, limits, not_before)
                if chunk.done or chunk.last is not None:
                    return chunk, not_before
                raise SourceUnavailable(
                    f"no row of {range_.table} was read in time", hint="look at the datastore's load"
                )
            except SourceUnavailable:
                if time.monotonic() >= deadline:
                    raise
                self._checked = False
                limits = replace(limits, rows=max(1, limits.rows // 2), bytes=max(1, limits.bytes // 2))
                time.sleep(_PAUSE_S)

    def _check(self) -> None:
        """Check that the tables have the same keys as in the plan. Later the source compares them itself."""
        if self._checked:
            return
        names = {one.table for one in self._portion.ranges}
        found = {table.name: table for table in self._tables.tables(names.__contains__)}
        for name in sorted(names & found.keys()):
            if not found[name].refused and found[name].fingerprint != self._portion.fingerprints[name]:
                raise key_changed(name)
        self._checked = True

    def _not_before(self) -> Datamarker:
        now = time.monotonic()
        if now - self._looked_at >= _END_S:
            self._end = not_before_of(self._scan.store, self._portion.log, self._scan.begins[self._portion.log])
            self._looked_at = now
        return self._end


def key_changed(table: str) -> ReplayError:
    """The error for a table whose key changed, so that its ranges have no meaning any more."""
    return ReplayError(
        f"the key of {table} changed while its rows were read: its columns, their types or their collation",
        hint="begin the baseline in another folder, when no ALTER of a key is under way",
    )


class _RowsFile:
    """Writes the rows of one range into a file, which is created with the first row."""

    def __init__(self, storage: Storage, range_: KeyRange, scan: int, shard_of: Callable[[str, bytes], str]) -> None:
        self._storage = storage
        self._range = range_
        self._scan = scan
        self._shard_of = shard_of
        self._path = f"{FOLDER}/rows/{range_.number:08d}-{secrets.token_hex(4)}.parquet"
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._chunks = 0
        self._first: LogPosition | None = None
        self._high = ""
        self._rows: dict[str, Rows] = {}
        self._counts: dict[LogPosition, int] = {}
        self._schemas: dict[Schema, None] = {}

    def add(self, chunk: Chunk, not_before: Datamarker) -> None:
        """Add the next chunk, as rows that a backfill read at ``not_before``."""
        order = not_before.order
        self._first = order if self._first is None else min(self._first, order)
        self._high = chunk.high
        self._schemas[chunk.schema] = None
        number = self._range.number << _CHUNK_BITS | self._chunks
        self._chunks += 1
        if not chunk.rows:
            return
        builder = RunsBuilder()
        builder.begin(read_source(self._scan), number, 0, _NOWHERE)
        for key, update in chunk.rows.items():
            builder.add((self._shard_of(self._range.table, key),), chunk.schema, update)
        builder.end(order)
        for shard, run in builder.take().items():
            body = build_body(run, order.incarnation)
            if body is not None:
                # Rows are counted over all shards, so that all rows of the file have different places.
                rows = self._rows.setdefault(shard, Rows())
                rows.reads = ReadsAt(order, self._counts.get(order, 0))
                rows.add_body(parse_body(body.data), {chunk.schema.id: chunk.schema}.__getitem__)
                self._counts[order] = rows.reads.rows
        if sum(rows.size for rows in self._rows.values()) >= _ROW_GROUP:
            self._spill()

    def finish(self) -> Done:
        """Make the file complete and durable, after everything was added."""
        assert self._first is not None
        self._spill()
        file = None
        if self._sink is not None and self._writer is not None:
            with storage_errors("write", self._storage.path(self._path)):
                self._writer.close()
                self._sink.close()
                self._storage.settle(self._path)
                with self._storage.open_input(self._path) as source:
                    size = source.size()
                    file = UpdatesFile(self._path, size, blocks_of(source, size))
        shards = tuple(sorted(self._rows))
        return Done(self._range.number, self._first, self._high, file, self._counts, shards, tuple(self._schemas))

    def abort(self) -> None:
        """Remove the file. Raises nothing."""
        if self._sink is None:
            return
        try:
            self._sink.close()
            self._storage.delete(self._path)
        except (OSError, WormholeError):
            pass  # the file may stay, because no range names it

    def _spill(self) -> None:
        for shard, rows in self._rows.items():
            if not len(rows):
                continue
            if self._writer is None:
                self._sink = self._storage.open_output(self._path)
                self._writer = pq.ParquetWriter(self._sink, PLAIN, compression="zstd")
            with storage_errors("write", self._storage.path(self._path)):
                self._writer.write_batch(plain_rows(rows.take(), shard))
