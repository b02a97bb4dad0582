"""Walks over records: what a two-phase commit looks like, in one piece and in many."""

from __future__ import annotations

import pytest

from datastores.rocksdb.decode.write_batch import Encoder, Status
from datastores.rocksdb.log.transaction import Bytes, Outcome, Payload, PreparedBatch, RecordWalk
from tests.support.rocksdb_wal import batch, delete, put, string
from wormhole.model.errors import DecodeError, UnsupportedLog
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

BEGIN = b"\x09"


def end(name: bytes) -> bytes:
    return b"\x0a" + string(name)


def commit(name: bytes, timestamp: bytes | None = None) -> bytes:
    return b"\x0b" + string(name) if timestamp is None else b"\x15" + string(timestamp) + string(name)


def rollback(name: bytes) -> bytes:
    return b"\x0c" + string(name)


class Dribble:
    """A payload that comes a few bytes at a time."""

    def __init__(self, data: bytes, step: int = 3) -> None:
        self._data, self._step = data, step

    def read(self, size: int) -> bytes:
        piece, self._data = self._data[: self._step], self._data[self._step :]
        return piece


class Log:
    """Records by offset, walked one after the other."""

    def __init__(self, dribble: bool = False) -> None:
        self.records: dict[int, bytes] = {}
        self.encoder = Encoder(1 << 20)
        self.prepared: dict[bytes, PreparedBatch] = {}
        self._dribble = dribble

    def payload(self, offset: int) -> Payload:
        return Dribble(self.records[offset]) if self._dribble else Bytes(self.records[offset])

    def walk(self, record: bytes) -> RecordWalk:
        offset = len(self.records)
        self.records[offset] = record
        return RecordWalk(
            self.encoder,
            self.payload(offset),
            (1, offset),
            self.prepared,
            lambda prepared: self.payload(prepared.place[1]),
            lambda family: self.encoder.add_family(family, 0, 8 if family == 6 else 0, 0),
        )

    def take(self, record: bytes) -> tuple[bytes, int]:
        walk = self.walk(record)
        assert walk.step(1 << 30) == Outcome.DONE
        if walk.index:
            self.encoder.end_transaction(0)
        return self.encoder.take().blob, walk.consumed


A = entry(encode_row(Op.UPSERT, (b"a",), after=(b"1",)))
B = entry(encode_row(Op.DELETE, (b"b",)))


@pytest.mark.parametrize("dribble", [False, True])
def test_prepare_commit_and_rollback(dribble: bool) -> None:
    log = Log(dribble)
    prepare = [BEGIN, put(b"a", b"1"), delete(b"b"), end(b"t")]
    assert log.take(batch(1, prepare, 2)) == (b"", 0)
    assert log.prepared[b"t"].entries == 2
    assert log.take(batch(1, [put(b"a", b"1")])) == (A, 1)
    assert log.take(batch(2, [commit(b"t")], 0)) == (A + B, 2)
    assert not log.prepared
    log.take(batch(4, prepare, 2))
    assert log.take(batch(4, [rollback(b"t")], 0)) == (b"", 0)
    assert log.take(batch(4, [rollback(b"unknown")], 0)) == (b"", 0)


@pytest.mark.parametrize("dribble", [False, True])
def test_group_commit_joins_everything_in_one_record(dribble: bool) -> None:
    log = Log(dribble)
    log.take(batch(1, [BEGIN, delete(b"b"), end(b"t")], 1))
    joined = [put(b"a", b"1"), commit(b"t"), b"\x03" + string(b"note"), BEGIN, delete(b"x"), end(b"u"), put(b"a", b"1")]
    assert log.take(batch(1, joined, 3)) == (A + B + A, 3)
    assert list(log.prepared) == [b"u"]


def test_commit_timestamps_replace_what_was_prepared() -> None:
    log = Log()
    log.take(batch(1, [BEGIN, put(b"key" + bytes(8), b"v", family=3), end(b"t")], 1))
    assert log.take(batch(1, [commit(b"t", b"12345678")], 0))[0] == entry(
        encode_row(Op.UPSERT, (b"key", b"12345678"), after=(b"v",))
    )
    assert log.encoder.commit_timestamp == b""


def test_a_walk_that_encodes_nothing_counts_the_same() -> None:
    log = Log()
    log.encoder.skipping = True
    log.take(batch(1, [BEGIN, put(b"a", b"1"), delete(b"b"), end(b"t")], 2))
    assert log.take(batch(1, [commit(b"t"), delete(b"z")], 1)) == (b"", 3)


def test_gaps_come_before_anything_changes() -> None:
    log = Log()
    log.take(batch(1, [BEGIN, put(b"a", b"1"), end(b"t")], 1))
    log.encoder.expected = 5
    for sequence, outcome in ((9, Outcome.GAP), (3, Outcome.BACK)):
        assert log.walk(batch(sequence, [commit(b"t")], 0)).step(1) == outcome
        assert log.walk(batch(sequence, [put(b"a", b"1")])).step(1) == outcome
        assert list(log.prepared) == [b"t"]
    assert log.encoder.updates == 0


def test_a_commit_of_nothing_known_is_reported_and_passed() -> None:
    log = Log()
    walk = log.walk(batch(1, [commit(b"lost"), put(b"a", b"1")], 1))
    assert walk.step(1 << 20) == Outcome.UNPREPARED
    assert walk.xid == b"lost"
    assert walk.step(1 << 20) == Outcome.DONE
    assert (walk.consumed, walk.index) == (1, 1)


@pytest.mark.parametrize(
    ("entries", "count", "text"),
    [
        ([BEGIN, put(b"a", b"1")], 1, "a prepare has no end"),
        ([end(b"t")], 0, "that did not begin"),
        ([BEGIN, BEGIN], 0, "inside a prepare"),
        ([BEGIN, commit(b"t"), end(b"t")], 0, "is inside a prepare"),
        ([put(b"a", b"1"), rollback(b"t")], 2, "has 2 entries and has 1"),
        ([b"\x0b\x7fshort"], 0, "name of a transaction"),
        ([b"\x0b\xff\xff\xff\xff\xff\xff"], 0, "name of a transaction"),
        ([rollback(b"t"), b"\x7f"], 1, "kind 0x7f is not known"),
    ],
)
@pytest.mark.parametrize("dribble", [False, True])
def test_broken_records_say_what_is_wrong(entries: list[bytes], count: int, text: str, dribble: bool) -> None:
    with pytest.raises(DecodeError, match=text):
        Log(dribble).walk(batch(1, entries, count)).step(1 << 20)
    with pytest.raises(DecodeError, match="header"):
        Log(dribble).walk(b"short").step(1)


def test_databases_that_number_batches_are_refused() -> None:
    with pytest.raises(UnsupportedLog, match="seq_per_batch") as caught:
        Log().walk(batch(1, [b"\x13"], 0)).step(1)
    assert "WRITE_COMMITTED" in str(caught.value.hint)
    assert Status.PER_BATCH
