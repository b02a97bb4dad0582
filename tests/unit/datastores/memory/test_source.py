"""What the contract suite does not reach: the ways in which a test breaks the log."""

from __future__ import annotations

import pytest

from datastores.memory.source import Change, MemorySource
from wormhole.model.errors import Diverged, SourceUnavailable
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding, shard_of_table
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read, read_until


def test_a_skipped_range_is_reported() -> None:
    source = MemorySource()
    start = source.latest()
    source.commit([(Op.INSERT, "t", 1, {"a": 1})])
    source.skip(3)
    end = source.commit([(Op.INSERT, "t", 2, {"a": 1})])
    read = read_until(source.open(start), end.order)
    assert [(g.kind, g.first_missing, g.last_missing) for g in read.gaps] == [(LossKind.NOT_LOGGED, "2", "4")]
    assert read.keys() == [1, 2]


def test_a_purge_under_a_reader_is_a_gap() -> None:
    source = MemorySource()
    reader = source.open(source.latest())
    source.commit([(Op.INSERT, "t", 1)])
    source.purge()
    end = source.commit([(Op.INSERT, "t", 2)])
    read = read_until(reader, end.order)
    assert [g.kind for g in read.gaps] == [LossKind.PURGED]
    assert read.keys() == [2]


def test_a_restore_under_a_reader_diverges() -> None:
    source = MemorySource()
    saved = source.latest()
    source.commit([(Op.INSERT, "t", 1)])
    reader = source.open(source.latest())
    source.restore(saved, new_incarnation=True)
    with pytest.raises(Diverged):
        reader.read(100, 0.0)
    assert source.latest().order.incarnation == 2


def test_over_its_capacity_the_oldest_goes() -> None:
    source = MemorySource(capacity=1000)
    for n in range(100):
        source.commit([(Op.INSERT, "t", n, {"v": b"x" * 100})])
    assert source.status().pinned_bytes <= 1000
    assert int(source.earliest().delivered) > 80


def test_unreachable() -> None:
    source = MemorySource()
    reader = source.open(source.latest())
    source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        source.latest()
    with pytest.raises(SourceUnavailable):
        reader.read(100, 0.0)
    source.set_reachable(True)
    assert source.latest()


def test_a_key_that_moves_and_a_barrier_over_all_shards() -> None:
    source = MemorySource("log", Sharding("hash", 2))
    start = source.latest()
    source.commit([Change(Op.UPDATE, "t", b"b", {"v": 1}, old_key=b"a"), Change(Op.TRUNCATE, "t")])
    read = read_until(source.open(start), source.latest().order, into=Read())
    ops = [(u.op, u.key) for u in read.updates]
    assert ops[-2:] == [("truncate", ()), ("truncate", ())]
    assert ops[:-2] in ([("update", (b"b",))], [("delete", (b"a",)), ("insert", (b"b",))])


def test_by_database() -> None:
    source = MemorySource("log", Sharding("database"))
    source.commit([(Op.INSERT, "shop.users", {"id": 1}, {"name": "x"})])
    assert source.shards() == {shard_of_table("log", "shop")}
