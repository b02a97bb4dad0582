"""Two-phase commit as Debian's librocksdb writes it: prepared, committed, rolled back, over several WAL files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.rocksdb.log.scan import find_sequence, read_record, scan_end
from tests.support.librocksdb import TransactionStore
from tests.support.present import present
from tests.support.rocksdb_wal import DirectoryFiles, gaps_of, open_reader, segments, updates_of
from wormhole.model.loss import LossKind


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TransactionStore]:
    store = TransactionStore(tmp_path / "db")
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "db"


def test_prepared_updates_come_with_their_commit(store: TransactionStore, folder: Path) -> None:
    store.put(b"a", b"1")
    first, second, third = (store.begin(name) for name in (b"first", b"second", b"third"))
    first.put(b"f1", b"v1")
    first.put(b"f2", b"v2")
    first.prepare()
    second.put(b"s1", b"w1")
    second.delete(b"s2")
    second.prepare()
    third.put(b"gone", b"x")
    third.prepare()
    store.put(b"b", b"2")
    second.commit()
    third.rollback()
    store.flush()  # from here on a new WAL
    store.put(b"c", b"3")
    first.commit()
    store.put(b"d", b"4")
    found = list(segments(open_reader(folder)))
    assert not gaps_of(found)
    assert [(u.op, u.key[0], u.transaction, u.index) for u in updates_of(found)] == [
        ("upsert", b"a", "src:1", 0),
        ("upsert", b"b", "src:2", 0),
        ("upsert", b"s1", "src:3", 0),
        ("delete", b"s2", "src:3", 1),
        ("upsert", b"c", "src:5", 0),
        ("upsert", b"f1", "src:6", 0),
        ("upsert", b"f2", "src:6", 1),
        ("upsert", b"d", "src:8", 0),
    ]
    last = present(found[-1].marker)
    assert last.delivered == "8"
    assert last.read_from == last.order


@pytest.mark.parametrize("max_bytes", [1, 1 << 18])
def test_a_restart_anywhere_loses_and_repeats_nothing(store: TransactionStore, folder: Path, max_bytes: int) -> None:
    open_transactions = []
    for i in range(12):
        transaction = store.begin(b"t%d" % i)
        for j in range(i % 4 + 1):
            transaction.put(b"k%d-%d" % (i, j), b"v" * 10 * j)
        transaction.prepare()
        open_transactions.append(transaction)
        store.put(b"plain%d" % i, b"p")
        if i % 3 == 2:
            store.flush()
        if i >= 4:
            done = open_transactions[i - 4]
            done.rollback() if i % 5 == 0 else done.commit()
    for transaction in open_transactions[8:]:
        transaction.commit()
    reader = open_reader(folder)
    whole = list(segments(reader, max_bytes))
    expected = updates_of(whole)
    delivered = 0
    for segment in whole:
        delivered += segment.updates
        if segment.marker is None:
            continue  # a piece of a transaction
        again = updates_of(segments(open_reader(folder, segment.marker)))
        assert again == expected[delivered:], str(segment.marker)
    assert any(s.marker and s.marker.read_from < s.marker.order for s in whole)


def test_what_passes_the_log_is_reported_with_its_range(store: TransactionStore, folder: Path) -> None:
    store.put(b"a", b"1")
    transaction = store.begin(b"t")
    transaction.put(b"k1", b"v")
    transaction.put(b"k2", b"v")
    transaction.prepare()
    for i in range(3):
        store.put(b"x%d" % i, b"unlogged", wal=False)
    transaction.commit()
    store.put(b"y", b"unlogged", wal=False)
    store.put(b"b", b"2")
    found = list(segments(open_reader(folder)))
    assert [(g.kind, g.first_missing, g.last_missing) for g in gaps_of(found)] == [
        (LossKind.NOT_LOGGED, "2", "4"),
        (LossKind.NOT_LOGGED, "7", "7"),
    ]
    assert [u.key[0] for u in updates_of(found)] == [b"a", b"k1", b"k2", b"b"]
    before = next(s for s in found if s.gap is None and s.marker)
    assert before.marker is not None
    again = list(segments(open_reader(folder, before.marker)))
    assert [g.first_missing for g in gaps_of(again)] == ["2", "7"]


def test_a_prepare_of_megabytes_is_read_again_from_the_wal(store: TransactionStore, folder: Path) -> None:
    transaction = store.begin(b"large")
    value = bytes(range(256)) * 40
    for i in range(1000):
        transaction.put(b"key%04d" % i, value)
    transaction.prepare()
    store.flush()
    store.put(b"a", b"1")
    transaction.commit()
    store.put(b"b", b"2")
    found = list(segments(open_reader(folder), 1 << 18))
    updates = updates_of(found)
    assert [u.key[0] for u in updates] == [b"a", *(b"key%04d" % i for i in range(1000)), b"b"]
    assert all(u.after == (value,) for u in updates[1:-1])
    assert [u.index for u in updates[1:-1]] == list(range(1000))
    assert max(s.size for s in found) < 1 << 20
    assert sum(s.marker is None for s in found) > 30


def test_the_end_and_every_number_are_found(store: TransactionStore, folder: Path) -> None:
    transaction = store.begin(b"t")
    transaction.put(b"k1", b"v")
    transaction.put(b"k2", b"v")
    transaction.prepare()
    store.put(b"a", b"1")
    transaction.commit()
    store.put(b"b", b"2")
    files = DirectoryFiles(folder)
    found = list(segments(open_reader(folder)))
    end = scan_end(files, source_id="src", incarnation=1)
    last = present(found[-1].marker)
    assert (end.order, end.delivered, end.anchor) == (last.order, "4", last.anchor)
    assert scan_end(files, source_id="src", incarnation=1, after=end) == end
    assert last.anchor is not None
    record = present(read_record(files, last.anchor.begin))
    assert (f"src:{record.sequence}", record.checksum, record.end) == (last.anchor.id, last.anchor.checksum, last.order)
    everything = updates_of(found)
    for sequence, following in {0: 0, 1: 1, 2: 1, 3: 3, 4: 4}.items():
        place = find_sequence(files, sequence, source_id="src", incarnation=1)
        assert updates_of(segments(open_reader(folder, place))) == everything[following:], sequence
