"""RocksDB with random options, written by its newest release, compared with what was written.

``WORMHOLE_ROUNDS`` and ``WORMHOLE_SEED`` as in ``test_kill_nine.py``.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datastores.rocksdb.doctor import check
from datastores.rocksdb.existing_rows.source import RocksTables
from datastores.rocksdb.source import RocksSource
from tests.support.rocks_java import JavaStore, Options
from tests.support.rocks_options import Life
from tests.support.rocksdb_wal import batch, string, varint
from tests.support.seed import SEED
from wormhole.model.errors import UnreadableTable, UnsupportedLog
from wormhole.model.findings import Severity
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_key, decode_row, values_of

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "4"))


def test_whatever_the_options_everything_written_is_read(tmp_path: Path) -> None:
    print(f"WORMHOLE_SEED={SEED} WORMHOLE_ROUNDS={ROUNDS}")
    for number in range(ROUNDS):
        seed = SEED + number
        folder = tmp_path / str(seed)
        folder.mkdir()
        life = Life(folder, random.Random(seed))
        try:
            life.live(30)
            life.compare()
        except BaseException as error:
            error.add_note(f"WORMHOLE_SEED={seed} WORMHOLE_ROUNDS=1")
            error.add_note("\n".join(life.steps))
            raise
        finally:
            life.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("policy", ["WRITE_PREPARED", "WRITE_UNPREPARED"])
@pytest.mark.parametrize("prepared", [True, False], ids=["prepared", "plain"])
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "in one file"])
def test_a_database_that_numbers_batches_is_refused_and_named_by_doctor(
    tmp_path: Path, policy: str, prepared: bool, flushed: bool
) -> None:
    store = JavaStore(tmp_path / "store")
    store.open(policy, {"WAL_ttl_seconds": "3600"}, {"default": {}})
    if prepared:
        store.begin("one", [("put", "default", b"a", b"1"), ("put", "default", b"b", b"1")])
        store.prepare("one")
        store.commit("one")
    else:
        store.write([("put", "default", b"a", b"1"), ("put", "default", b"b", b"1")])
    if flushed:
        store.flush()
    store.write([("put", "default", b"c", b"1")])
    store.flush_wal()
    source = RocksSource(
        store.path,
        log="log",
        state_dir=tmp_path / "state",
        sharding=Sharding("log"),
        max_update_bytes=1 << 26,
        disk_budget=1 << 30,
    )
    source.start()
    try:
        with pytest.raises(UnsupportedLog):
            source.latest()
        found = {one.check: one for one in check(f"rocksdb://{store.path}", tmp_path / "state").findings}
        assert found["log"].severity is Severity.PROBLEM
        assert found["log"].next_step
    finally:
        source.stop()
        store.close()
        store.end()


_ALL = ChunkLimits(rows=1_000_000, bytes=1 << 30, seconds=60.0)
_NOWHERE = Datamarker(LogPosition(1, 0, 0), "", LogPosition(1, 0, 0))
_READABLE = {"block_based_table_factory": "{format_version=6}"}


@contextmanager
def _existing(folder: Path, options: Options, readable: Options) -> Iterator[RocksTables]:
    """The tables of a database with families of every sort, flushed and not."""
    store = JavaStore(folder / "store")
    families = {
        "default": readable,
        "wide": readable,
        "stamped": {**readable, "comparator": "leveldb.BytewiseComparator.u64ts"},
        "mixed": readable,
        "merged": {**readable, "merge_operator": "stringappend"},
    }
    store.open("plain", options, families)
    entity = varint(1) + varint(2) + string(b"") + varint(1) + string(b"c") + varint(2) + b"DCC"
    for number, flush in enumerate((True, True, False)):
        key = b"%d" % number
        store.write([("put", "default", key, b"value"), ("merge", "merged", b"k", key), ("put", "mixed", b"p", key)])
        for name in ("wide", "mixed"):
            store.write_raw(batch(0, [b"\x17" + varint(store.number(name)) + string(key) + string(entity)]))
        stamp = (number + 1).to_bytes(8, "little")
        store.write_raw(batch(0, [b"\x05" + varint(store.number("stamped")) + string(key + stamp) + string(b"v")]))
        if flush:
            store.flush()
    store.flush_wal()
    tables = RocksTables(
        store.path, log="log", state_dir=folder / "state", sharding=Sharding("log"), max_update_bytes=1 << 26
    )
    try:
        yield tables
    finally:
        tables.close()
        store.close()
        store.end()


def _rows(tables: RocksTables, family: str) -> dict[tuple[object, ...], tuple[object, ...]]:
    chunk = tables.chunk(family, None, None, _ALL, _NOWHERE)
    return {decode_key(key): values_of(decode_row(row).after) for key, row in chunk.rows.items()}


@pytest.mark.parametrize("options", [{}, {"wal_compression": "kZSTD"}, {"two_write_queues": "true"}], ids=str)
def test_existing_rows_are_right_or_refused(tmp_path: Path, options: Options) -> None:
    with _existing(tmp_path, options, _READABLE) as tables:
        keys = [(b"0",), (b"1",), (b"2",)]
        assert _rows(tables, "default") == dict.fromkeys(keys, (b"value",))
        assert _rows(tables, "wide") == dict.fromkeys(keys, (b"D", {b"c": b"CC"}))
        assert _rows(tables, "merged") == {(b"k",): (b"0,1,2",)}
        for refused in ("stamped", "mixed"):
            with pytest.raises(UnreadableTable):
                _rows(tables, refused)


@pytest.mark.parametrize(
    ("options", "readable", "words"),
    [({}, {}, "format_version 7"), ({"track_and_verify_wals": "true"}, _READABLE, "its WAL has records")],
    ids=["tables", "log"],
)
def test_existing_rows_that_the_binding_cannot_read_are_not_left_out(
    tmp_path: Path, options: Options, readable: Options, words: str
) -> None:
    with _existing(tmp_path, options, readable) as tables:
        for family in ("default", "wide", "merged"):
            with pytest.raises(UnreadableTable, match=words):
                _rows(tables, family)
        with pytest.raises(UnreadableTable, match=words):
            tables.tables(lambda _: True)
