"""Small archives for tests, written with the real writer and committed to the real store.

::

    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k1", b"v1"), put(b"k2", b"v2")), tx(gone(b"k1"))],
    [tx(put(b"k3", b"v"))]]})

is shard ``a`` with two files, the first of two transactions. Places go up by 100 from ``1/1/0`` at each transaction,
numbers by 1 from 1, commit times by a second from ``FIRST_US``; after each transaction stands a datamarker.
``row(...)`` makes changes of a table as a MySQL server has them.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_replay.archive.checksums import Blocks, blocks_of
from spark_replay.archive.manifest import Manifest, manifest_to_json
from spark_replay.archive.reader import DataFile
from spark_replay.archive.rows import Rows
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.writer import DataFileWriter
from spark_replay.replay.delivery import SentPiece
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.reads import read_source
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op, Value
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.update import Batch, Update

FIRST_US = 1_700_000_000_000_000
STEP = 100
KEYS = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))
"""As a RocksDB has it."""
CUSTOMERS = Schema(
    "shop.customers",
    (Column("id", "int"),),
    (Column("id", "int"), Column("name", "text"), Column("city", "text"), Column("credit", "uint")),
)
"""As a MySQL server has it: the key is among the columns."""


def crc_at(path: Path) -> int:
    """The CRC of a file's footer, for an entry that is to name a file that a test has changed."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    return zlib.crc32(data[-length:]) if len(data) >= length else 0


def blocks_at(path: Path) -> Blocks:
    """The checksums of a file's bytes, for the same."""
    with pa.OSFile(str(path)) as source:
        return blocks_of(source, source.size())


def manifest_given(manifest: Manifest) -> dict[str, Any]:
    """The JSON of a manifest without its checksum, for tests that change it."""
    given: dict[str, Any] = json.loads(manifest_to_json(manifest))
    del given["crc32"]
    return given


@dataclass(frozen=True)
class Change:
    """One update. Values stand in the order of the schema's columns."""

    op: Op
    key: tuple[Value, ...]
    after: tuple[Value, ...] = ()
    before: tuple[Value, ...] = ()
    old_key: tuple[Value, ...] = ()
    key_end: tuple[Value, ...] = ()
    too_large: bool = False
    schema: Schema = KEYS

    def encoded(self) -> bytes:
        """Its ``wormhole.wire.v1.Update``."""
        return encode_row(
            self.op,
            self.key,
            after=self.after,
            before=self.before,
            old_key=self.old_key,
            key_end=self.key_end,
            too_large=self.too_large,
        )


@dataclass(frozen=True)
class Tx:
    """One transaction, or of a ``chunk`` (its number) the rows that a backfill read after the transaction before.
    ``pieces``: in how many pieces the log was read (none but the last has the place after it);
    ``at_us``: commit time in microseconds, 0 for none, ``None`` for one of its own. ``marked``: whether a datamarker
    stands after it; the last one of a file always has one."""

    changes: tuple[Change, ...]
    pieces: int = 1
    at_us: int | None = None
    marked: bool = True
    chunk: int = 0


def put(key: bytes, value: bytes, schema: Schema = KEYS) -> Change:
    """A write to a RocksDB."""
    return Change(Op.UPSERT, (key,), (value,), schema=schema)


def gone(key: bytes) -> Change:
    """A deletion from a RocksDB."""
    return Change(Op.DELETE, (key,), schema=KEYS)


def row(
    op: Op,
    after: Sequence[Value] | None = None,
    before: Sequence[Value] | None = None,
    schema: Schema = CUSTOMERS,
) -> Change:
    """A change of a table whose first column is the key, with the images before and after; another key before and
    after is a key change."""
    image = after if after is not None else before
    assert image is not None
    old_key = (before[0],) if after is not None and before is not None and before[0] != after[0] else ()
    return Change(op, (image[0],), tuple(after or ()), tuple(before or ()), old_key, schema=schema)


def tx(*changes: Change, pieces: int = 1, at_us: int | None = None, marked: bool = True) -> Tx:
    """A transaction; see :class:`Tx`."""
    return Tx(changes, pieces, at_us, marked)


def chunk(number: int, *changes: Change) -> Tx:
    """The rows of a chunk; see :class:`Tx`."""
    return Tx(changes, chunk=number)


def copy_of(store: ArchiveStore, folder: Path) -> ArchiveStore:
    """The same archive in ``folder``, for a test that changes it: to write one takes much longer."""
    shutil.copytree(store.to, folder)
    return open_store(str(folder), store.dataset, copy=store.copy)


def manifest_of(store: ArchiveStore, shard: str = "a") -> Manifest:
    """The newest one, of a shard that has one."""
    return present(store.read(shard))


def present(manifest: Manifest | None) -> Manifest:
    """The same, where there is one."""
    assert manifest is not None
    return manifest


def batches_of(store: ArchiveStore, shard: str = "a") -> list[pa.RecordBatch]:
    """Its rows, in order."""
    found: list[pa.RecordBatch] = []
    for entry in manifest_of(store, shard).files:
        with DataFile(store.open_data(shard, entry.name), entry.name) as file:
            found += file.batches()
    return found


def pushed_ids(pieces: Iterable[SentPiece]) -> list[str]:
    """The ids of the updates that these pieces push, in order."""
    bodies = [parse_body(piece.body.data) for piece in pieces if piece.body is not None]
    return [
        f"{body.transaction_id(body.transaction_of(row))}:{body.index_of(row)}"
        for body in bodies
        for row in range(len(body.updates))
    ]


def marker_at(number: int, shard: str = "a", at_us: int | None = None) -> Datamarker:
    """The datamarker after transaction ``number`` of an archive of :func:`write_archive`; 0 is the beginning."""
    place = LogPosition(1, 1, STEP * number)
    if not number:
        return Datamarker(place, "0", place)
    anchor = Anchor(f"source-{shard}:{number}", number, LogPosition(1, 1, STEP * (number - 1)))
    return Datamarker(place, str(number), place, anchor, FIRST_US + number * 1_000_000 if at_us is None else at_us)


def segments(shard: str, transactions: Iterable[Tx], first: int = 1) -> list[Segment]:
    """Transactions as the pieces of log that a source hands on; the first has number ``first``."""
    found: list[Segment] = []
    builder = RunsBuilder()
    number = first - 1
    for one in transactions:
        if one.chunk:
            at = marker_at(number, shard)
            builder.begin(read_source(1), one.chunk, 0, at.order)
            for change in one.changes:
                builder.add([shard], change.schema, change.encoded())
            builder.end(at.order)
            found.append(Segment(at.order, at.order, builder.take(), at, 0))
            continue
        number += 1
        begin, end = marker_at(number - 1, shard), marker_at(number, shard, one.at_us)
        at_us = end.committed_at_us
        builder.begin(f"source-{shard}", number, at_us, begin.order)
        size = -(-len(one.changes) // one.pieces) or 1
        for i, change in enumerate(one.changes):
            if i and i % size == 0:
                found.append(Segment(begin.order, begin.order, builder.take(), None, 0))
            builder.add([shard], change.schema, change.encoded())
        builder.end(end.order)
        found.append(Segment(begin.order, end.order, builder.take(), end if one.marked else None, 0, at_us))
    return found


def updates_of(piece: Segment, shard: str = "a") -> list[Update]:
    """What a subscriber is told of it."""
    run = piece.runs[shard]
    body = build_body(run, piece.end.incarnation)
    assert body is not None
    by_id = {schema.id: schema for schema in run.schemas}
    return Batch(parse_body(body.data), shard, 1, False, by_id.__getitem__).updates()


def write_file(
    store: ArchiveStore,
    shard: str,
    pieces: Sequence[Segment],
    end: Datamarker,
    *,
    begin: Datamarker | None = None,
    epoch: int = 1,
    row_group: int = 8 << 20,
    whole: bool = True,
) -> Manifest:
    """One file with everything in ``pieces`` up to ``end``, committed; a row group at every ``row_group`` bytes.

    The first of a shard begins at ``begin``."""
    present = store.read(shard)
    start = present.end if present is not None else begin or marker_at(0, shard)
    name = f"{epoch:06d}-{present.version + 1 if present else 1:06d}.parquet"
    with store.create_data(shard, name) as file:
        writer = DataFileWriter(file.sink, name, dataset=store.dataset, shard=shard, epoch=epoch, begin=start)
        rows = Rows()

        def spill() -> None:
            too_large = rows.too_large
            writer.write(rows.take(), rows.schemas, too_large)

        for piece in pieces:
            run = piece.runs.get(shard)
            body = None if run is None else build_body(run, piece.end.incarnation)
            if run is not None and body is not None:
                by_id = {schema.id: schema for schema in run.schemas}
                rows.add_body(parse_body(body.data), by_id.__getitem__)
            if rows.size >= row_group:
                spill()
            if piece.marker is not None:
                writer.mark(piece.marker)
        spill()
        entry = writer.finish(end)

    def appended(manifest: Manifest | None) -> Manifest:
        if manifest is None:
            return Manifest(
                store.dataset, shard, 1, epoch, start, entry.end, whole, (entry,), copy=store.copy, log=shard
            )
        return manifest.appended(replace(entry, begin=manifest.end), epoch)

    return store.change(shard, appended)


def write_archive(
    folder: Path | str,
    shards: Mapping[str, Sequence[Sequence[Tx]]],
    *,
    dataset: str = "orders",
    copy: str = "main",
    epoch: int = 1,
    row_group: int = 8 << 20,
    whole: bool = True,
) -> ArchiveStore:
    """An archive in ``folder`` (or more of one that is there): by shard its files, each a list of transactions."""
    store = open_store(str(folder), dataset, copy=copy, create=True)
    for shard, files in shards.items():
        present = store.read(shard)
        number = int(present.end.delivered) + 1 if present is not None else 1
        for transactions in files:
            pieces = segments(shard, transactions, number)
            number += sum(not one.chunk for one in transactions)
            end = marker_at(number - 1, shard, transactions[-1].at_us)
            write_file(store, shard, pieces, end, epoch=epoch, row_group=row_group, whole=whole)
    return store
