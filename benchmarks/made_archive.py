"""Writes an archive of any number of updates directly, for sizes at which a log and its archiver would take longer than
the measurement.

Rows, files and manifests have the form that the archiver gives them for a log of :mod:`benchmarks.store`: each
transaction has ten updates, spread over all shards, and row groups and files have the archiver's sizes. Only the shard
of a key differs: it is the key's number modulo the number of shards. Positions are in WAL 1, before the log of every
store of these benchmarks.

Run as ``python -m benchmarks.made_archive FOLDER COUNT SIZE SHARDS KEYS ORDINAL...``: writes the shards of these
ordinals. Prints ``written``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.cases import line, program
from spark_replay.archive.columns import PLACE_BYTES, SCHEMA
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.rows import Rows
from spark_replay.archive.shard_writer import ROW_GROUP
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.writer import DataFileWriter
from wormhole.config.model import ArchiveConfig
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

__all__ = ["MadeArchive", "make_archive"]

_SCHEMA: Final = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))
_KEY: Final = b"key000000000000"
_DIGITS: Final = 12
_PER_TX: Final = 10
_SOURCE: Final = "b3ac4f1e"
_FIRST_US: Final = 1_790_000_000_000_000
_TX_US: Final = 10
_NOISE: Final = 4096
_PROCESSES: Final = 2


@dataclass(frozen=True, slots=True)
class MadeArchive:
    """``count`` updates of ``size`` bytes to ``keys`` keys in ``shards`` shards, in the folder ``folder``."""

    folder: Path
    count: int
    size: int
    shards: int
    keys: int

    def __post_init__(self) -> None:
        if self.count % (_PER_TX * self.shards) or self.keys % self.shards or not 0 < self.keys <= self.count:
            raise ValueError(f"{self.count} updates and {self.keys} keys are no whole transactions in each shard")

    @property
    def name(self) -> str:
        """A folder's name that no other archive has."""
        return f"{self.count}-{self.size}-{self.shards}-{self.keys}"

    @property
    def store(self) -> ArchiveStore:
        """It, open."""
        return open_store(str(self.folder), "bench", copy="main", create=True)


def make_archive(archive: MadeArchive) -> None:
    """Write it, unless it is there already, in as many processes as there are cores. Raises ``RuntimeError`` where it
    is not what was asked for.
    """
    archive.folder.mkdir(parents=True, exist_ok=True)
    store = archive.store
    lacking = [i for i in range(archive.shards) if store.head(_shard(archive, i)) is None]
    words = [str(archive.folder), *map(str, (archive.count, archive.size, archive.shards, archive.keys))]
    with ExitStack() as stack:
        groups = [lacking[first::_PROCESSES] for first in range(_PROCESSES)]
        started = [
            stack.enter_context(program("benchmarks.made_archive", *words, *map(str, group)))
            for group in groups
            if group
        ]
        for process in started:
            line(process)
    rows = sum(entry.rows for manifest in store.manifests().values() for entry in manifest.files)
    if rows != archive.count:
        raise RuntimeError(f"the archive in {archive.folder} has {rows} rows of {archive.count}")


def _shard(archive: MadeArchive, ordinal: int) -> str:
    return f"db.{ordinal}of{archive.shards}"


def _write_shard(archive: MadeArchive, ordinal: int) -> None:
    store, shard = archive.store, _shard(archive, ordinal)
    template = _Template(archive.size)
    count = archive.count // archive.shards
    numbers = _numbers(count, archive.keys // archive.shards, ordinal)
    group = max(_PER_TX, ROW_GROUP // template.row_bytes // _PER_TX * _PER_TX)
    file_rows = group * max(1, ArchiveConfig.model_fields["flush_size"].default // ROW_GROUP)
    at = _marker(archive, 0)
    entries = []
    for first in range(0, count, file_rows):
        groups = range(first, min(first + file_rows, count), group)
        entry = _write_file(archive, store, ordinal, template, numbers, groups, at)
        entries.append(entry)
        at = entry.end
    made = Manifest("bench", shard, 1, 1, entries[0].begin, at, True, tuple(entries), copy="main")
    store.change(shard, lambda present: present or made)


def _write_file(
    archive: MadeArchive,
    store: ArchiveStore,
    ordinal: int,
    template: _Template,
    numbers: np.ndarray[Any, Any],
    groups: range,
    begin: Datamarker,
) -> FileEntry:
    """Rows ``groups`` of the shard, a row group at each step; a datamarker behind each."""
    shard = _shard(archive, ordinal)
    name = f"{1:08d}-{groups.start:012d}.parquet"
    with store.create_data(shard, name) as file:
        writer = DataFileWriter(file.sink, name, dataset="bench", shard=shard, epoch=1, begin=begin)
        end = begin
        for first in groups:
            stop = min(first + groups.step, groups.stop)
            writer.write(template.rows(archive, ordinal, first, numbers[first:stop]), {_SCHEMA.id: _SCHEMA})
            end = _marker(archive, stop)
            writer.mark(end)
        return writer.finish(end)


def _numbers(count: int, keys: int, ordinal: int) -> np.ndarray[Any, Any]:
    """Which of its keys each update of a shard is to: every key comes once, and the rest anywhere among these."""
    if keys == count:
        return np.arange(count)
    chance = np.random.default_rng((7, ordinal))
    numbers = np.concatenate([np.arange(keys), chance.integers(0, keys, count - keys)])
    chance.shuffle(numbers)
    return numbers


def _marker(archive: MadeArchive, rows: int) -> Datamarker:
    """Behind this many rows of a shard, a whole number of transactions."""
    txs = rows * archive.shards // _PER_TX
    place = LogPosition(1, 1, txs * _tx_bytes(archive.size))
    return Datamarker(place, str(txs * _PER_TX), place, None, _FIRST_US + txs * _TX_US if txs else 0)


def _tx_bytes(size: int) -> int:
    return _PER_TX * (size + 20)


class _Template:
    """The columns of an update, made by the archiver's own code; only numbers differ from row to row."""

    def __init__(self, size: int) -> None:
        noise = random.Random(7).randbytes(size + _NOISE)
        builder = RunsBuilder()
        builder.begin(_SOURCE, 1, _FIRST_US, LogPosition(1, 1, 0))
        builder.add(["a"], _SCHEMA, encode_row(Op.UPSERT, (_KEY,), after=(noise[:size],)))
        end = LogPosition(1, 1, 1)
        builder.end(end)
        run = Segment(LogPosition(1, 1, 0), end, builder.take(), None, 0).runs["a"]
        body = build_body(run, 1)
        assert body is not None
        rows = Rows()
        rows.add_body(parse_body(body.data), {_SCHEMA.id: _SCHEMA}.__getitem__)
        self.row_bytes = rows.size
        self._row = rows.take()
        self._key: bytes = self._row.column("key")[0].as_py()
        self._update: bytes = self._row.column("update")[0].as_py()
        self._value_at = self._update.index(noise[:size])
        self._size = size
        self._windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(noise, np.uint8), size)[:_NOISE]

    def rows(self, archive: MadeArchive, ordinal: int, first: int, numbers: np.ndarray[Any, Any]) -> pa.RecordBatch:
        """Rows of a shard from its row ``first`` on, to these of its keys."""
        count = len(numbers)
        # Which update of the whole log each one is.
        of_log = np.arange(first, first + count, dtype=np.int64) * archive.shards + ordinal
        tx, index = of_log // _PER_TX, of_log % _PER_TX
        digits = _digits(numbers * archive.shards + ordinal)
        key, update = _repeated(self._key, count), _repeated(self._update, count)
        for column, given in ((key, self._key), (update, self._update)):
            at = given.index(_KEY) + len(_KEY) - _DIGITS
            column[:, at : at + _DIGITS] = digits
        update[:, self._value_at : self._value_at + self._size] = self._windows[of_log % _NOISE]
        place = np.zeros((count, PLACE_BYTES), np.uint8)
        place[:, 3] = place[:, 11] = 1
        place[:, 12:20] = _big_endian((tx + 1) * _tx_bytes(archive.size), 8)
        place[:, 21:25] = _big_endian(index, 4)
        ends = np.append(tx[1:] != tx[:-1], [True])
        made = {
            "place": pa.FixedSizeBinaryArray.from_buffers(pa.binary(PLACE_BYTES), count, [None, pa.py_buffer(place)]),
            "tx_number": pa.array(tx * _PER_TX + 1),
            "tx_index": pa.array(index.astype(np.int32)),
            "ends_tx": pa.array(ends),
            "committed_at": pa.array(_FIRST_US + (tx + 1) * _TX_US).cast(SCHEMA.field("committed_at").type),
            "key": _binary(key),
            "update": _binary(update),
        }
        same = pa.array(np.zeros(count, np.int64))
        columns = [made.get(name) or self._row.column(name).take(same) for name in SCHEMA.names]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _repeated(data: bytes, count: int) -> np.ndarray[Any, Any]:
    return np.tile(np.frombuffer(data, np.uint8), (count, 1))


def _digits(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Decimal digits as text, one row for each number."""
    found = np.empty((len(numbers), _DIGITS), np.uint8)
    left = numbers.astype(np.int64)
    for at in reversed(range(_DIGITS)):
        left, found[:, at] = np.divmod(left, 10)
    return found + ord("0")


def _big_endian(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    return numbers.astype(f">u{width}").view(np.uint8).reshape(-1, width)


def _binary(rows: np.ndarray[Any, Any]) -> pa.Array:
    count, width = rows.shape
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rows)])


def main() -> None:
    """See the module."""
    words: Iterator[int] = map(int, sys.argv[2:])
    archive = MadeArchive(Path(sys.argv[1]), next(words), next(words), next(words), next(words))
    for ordinal in words:
        _write_shard(archive, ordinal)
    print("written", flush=True)


if __name__ == "__main__":
    main()
