"""Batches to update bytes: every kind of entry, rare ones included."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType
from typing import Any

import pytest

from datastores.rocksdb.decode.log_format import Frames, frame
from datastores.rocksdb.decode.rare import rare_key, rare_update, wide_columns
from tests.support.hot import hot_module
from tests.support.rocksdb_wal import WalWriter, batch, delete, put, string, varint
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row, entry

# --- write batch ---


write_batch = hot_module("datastores.rocksdb.decode.write_batch")

KEY, VALUE = b"key", b"v" * 300


def encoder(module: ModuleType, most: int = 1 << 20, timestamp: int = 0, shards: int = 0) -> Any:
    result = module.Encoder(most, shards)
    for family in range(0, 400, 2):
        result.add_family(family, 0, timestamp, module.HASHED if shards else 0)
        result.add_family(family + 1, 1, timestamp, module.HASHED if shards else 0)
    return result


def wide(*columns: tuple[bytes, bytes]) -> bytes:
    head = varint(1) + varint(len(columns))
    return head + b"".join(string(n) + varint(len(v)) for n, v in columns) + b"".join(v for _, v in columns)


WIDE = wide((b"", b"default"), (b"a", b"1"), (b"b", b""))
ENTRIES = {
    "value": (b"\x01" + string(KEY) + string(VALUE), encode_row(Op.UPSERT, (KEY,), after=(VALUE,))),
    "empty": (b"\x01" + string(b"") + string(b""), encode_row(Op.UPSERT, (b"",), after=(b"",))),
    "family value": (b"\x05\x87\x01" + string(KEY) + string(VALUE), encode_row(Op.UPSERT, (KEY,), after=(VALUE,))),
    "deletion": (b"\x00" + string(KEY), encode_row(Op.DELETE, (KEY,))),
    "family deletion": (b"\x04\x07" + string(KEY), encode_row(Op.DELETE, (KEY,))),
    "single deletion": (b"\x07" + string(KEY), encode_row(Op.DELETE, (KEY,))),
    "family single deletion": (b"\x08\x07" + string(KEY), encode_row(Op.DELETE, (KEY,))),
    "deletion with timestamp": (b"\x14" + string(KEY), encode_row(Op.DELETE, (KEY,))),
    "merge": (b"\x02" + string(KEY) + string(b"+1"), encode_row(Op.MERGE, (KEY,), after=(b"+1",))),
    "family merge": (b"\x06\x07" + string(KEY) + string(b"+1"), encode_row(Op.MERGE, (KEY,), after=(b"+1",))),
    "range": (b"\x0f" + string(b"a") + string(b"b"), encode_row(Op.DELETE_RANGE, (b"a",), key_end=(b"b",))),
    "family range": (b"\x0e\x07" + string(b"a") + string(b"b"), encode_row(Op.DELETE_RANGE, (b"a",), key_end=(b"b",))),
    "blob": (b"\x11" + string(KEY) + string(b"\x01index"), encode_row(Op.UPSERT, (KEY,), after=(UNAVAILABLE,))),
    "family blob": (b"\x10\x07" + string(KEY) + string(b"i"), encode_row(Op.UPSERT, (KEY,), after=(UNAVAILABLE,))),
    "wide": (
        b"\x16" + string(KEY) + string(WIDE),
        encode_row(Op.UPSERT, (KEY,), after=(b"default", {b"a": b"1", b"b": b""})),
    ),
    "family wide": (
        b"\x17\x07" + string(KEY) + string(wide((b"c", b"x"))),
        encode_row(Op.UPSERT, (KEY,), after=(None, {b"c": b"x"})),
    ),
    "timed": (b"\x18" + string(KEY) + string(b"v" + bytes(8)), encode_row(Op.UPSERT, (KEY,), after=(b"v",))),
    "family timed": (b"\x19\x07" + string(KEY) + string(b"v" + bytes(8)), encode_row(Op.UPSERT, (KEY,), after=(b"v",))),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_each_kind_is_what_encode_row_writes(write_batch: ModuleType, name: str) -> None:
    data, expected = ENTRIES[name]
    e = encoder(write_batch)
    record = batch(7, [data, data])
    assert e.record(record, 0, len(record), 99) == write_batch.Status.OK, e.problem
    piece = e.take()
    assert piece.blob == entry(expected) * 2
    assert piece.ends.tolist() == [len(entry(expected)), 2 * len(entry(expected))]
    assert (piece.tx_number.tolist(), piece.tx_offset.tolist(), piece.tx_end.tolist()) == ([7], [99], [2])
    assert piece.schema_of.tolist() == [1 if "wide" in name else 0]
    assert e.expected == 9


@pytest.mark.parametrize("size", [0, 1, 47, 48, 49, 126, 127, 128, 255, 256, 257, 16383, 16384, 70_000, 300_000])
def test_sizes_at_the_edges_of_varints_and_copies(write_batch: ModuleType, size: int) -> None:
    e = encoder(write_batch)
    record = batch(1, [put(b"k" * size, b"v" * size), delete(b"k" * size)])
    assert e.record(record, 0, len(record), 1) == 0
    assert e.take().blob == entry(encode_row(Op.UPSERT, (b"k" * size,), after=(b"v" * size,))) + entry(
        encode_row(Op.DELETE, (b"k" * size,))
    )


def test_log_data_and_noops_take_no_number(write_batch: ModuleType) -> None:
    e = encoder(write_batch)
    record = batch(5, [b"\x03" + string(b"note"), b"\x0d", put(b"a", b"1")], count=1)
    assert e.record(record, 0, len(record), 1) == 0
    assert e.expected == 6
    assert e.updates == 1
    only_notes = batch(6, [b"\x03" + string(b"note")], count=0)
    assert e.record(only_notes, 0, len(only_notes), 2) == 0
    assert (e.expected, e.transactions) == (6, 1)


def test_what_is_no_batch_is_broken_and_leaves_nothing(write_batch: ModuleType) -> None:
    status = write_batch.Status
    good = put(b"a", b"1")
    cases = {
        "header": b"short",
        "2^56": struct.pack("<QI", 1 << 56, 1) + good,
        "says it has 2": batch(1, [good], count=2),
        "kind 0x1a": batch(1, [good, b"\x1a"], count=2),
        "key of an entry": batch(1, [good, b"\x01\x05abc"], count=2),
        "value of an entry": batch(1, [good, b"\x01\x01a\x7fxx"], count=2),
        "more than 32 bits": batch(1, [good, b"\x01\xff\xff\xff\xff\x1f"], count=2),
        "column family of": batch(1, [good, b"\x05\x80"], count=2),
        "log data": batch(1, [good, b"\x03\x09abc"], count=1),
    }
    for text, record in cases.items():
        e = encoder(write_batch)
        assert e.record(record, 0, len(record), 1) == status.BROKEN, text
        assert text in e.problem
        assert (e.updates, e.used, e.transactions) == (0, 0, 0)


def test_every_cut_of_a_batch_is_broken(write_batch: ModuleType) -> None:
    record = batch(1, [data for data, _ in ENTRIES.values()])
    for cut in range(len(record)):
        assert encoder(write_batch).record(record[:cut], 0, cut, 1) == write_batch.Status.BROKEN


def test_numbers_that_do_not_follow_are_reported_before_anything_is_encoded(write_batch: ModuleType) -> None:
    e = encoder(write_batch)
    e.expected = 5
    for sequence, status in ((7, write_batch.Status.GAP), (3, write_batch.Status.BACK)):
        record = batch(sequence, [put(b"a", b"1")])
        assert e.record(record, 0, len(record), 1) == status
        assert (e.sequence, e.expected, e.updates) == (sequence, 5, 0)


def test_markers_and_unknown_families_are_left_to_the_caller(write_batch: ModuleType) -> None:
    status = write_batch.Status
    for kind, expected in (
        (0x09, status.MARKER),
        (0x0B, status.MARKER),
        (0x12, status.PER_BATCH),
        (0x13, status.PER_BATCH),
    ):
        e = encoder(write_batch)
        record = batch(1, [put(b"a", b"1"), bytes([kind]) + string(b"xid")], count=1)
        assert e.record(record, 0, len(record), 1) == expected
        assert e.updates == 0
    e = write_batch.Encoder(1 << 20)
    record = batch(1, [put(b"a", b"1", family=9)])
    assert e.record(record, 0, len(record), 1) == status.FAMILY
    assert e.family == 18
    e.add_family(18, 3, 0, 2)
    assert e.record(record, 0, len(record), 1) == status.OK
    piece = e.take()
    assert (piece.schema_of.tolist(), piece.shard_of.tolist()) == ([3], [2])


def test_an_update_that_is_too_large_goes_without_values(write_batch: ModuleType) -> None:
    e = encoder(write_batch, most=100)
    record = batch(1, [put(b"a", b"1" * 99), put(b"b", b"1" * 100), b"\x0f" + string(b"c" * 60) + string(b"d" * 60)])
    assert e.record(record, 0, len(record), 1) == 0
    assert e.too_large == 2
    assert e.take().blob == (
        entry(encode_row(Op.UPSERT, (b"a",), after=(b"1" * 99,)))
        + entry(encode_row(Op.UPSERT, (b"b",), too_large=True))
        + entry(encode_row(Op.DELETE_RANGE, (b"c" * 60,), key_end=(UNAVAILABLE,), too_large=True))
    )


def test_in_pieces_it_returns_what_it_needs(write_batch: ModuleType) -> None:
    status = write_batch.Status
    entries = put(b"a", b"1") + put(b"b", b"2" * 500)
    e = encoder(write_batch)
    for cut in range(len(put(b"a", b"1")), len(entries)):
        e.counted = 0
        assert e.entries(entries[:cut], 0, cut, False) == (status.OK if cut == 5 else status.MORE)
        assert (e.at, e.counted) == (5, 1)
        assert e.need in {0, len(entries) - 5, 1 + 1 + 1 + 5}
    large = encoder(write_batch, most=100)
    assert large.entries(entries[:50], 0, 50, False) == status.SKIP
    assert (large.at, large.need, large.counted) == (50, len(entries) - 50, 2)
    assert large.too_large == 1
    large.skipping = True
    assert large.entries(entries[:50], 0, 50, False) == status.SKIP


def test_keys_are_split_over_shards_and_ranges_go_to_all(write_batch: ModuleType) -> None:
    e = encoder(write_batch, shards=8)
    keys = [b"key%d" % i for i in range(40)]
    record = batch(1, [*(put(k, b"v") for k in keys), b"\x0f" + string(b"a") + string(b"b")])
    assert e.record(record, 0, len(record), 1) == 0
    assert e.take().shard_of.tolist() == [*(zlib.crc32(k) % 8 for k in keys), write_batch.ALL_SHARDS]


def test_timestamps_are_a_column_of_the_key(write_batch: ModuleType) -> None:
    e = encoder(write_batch, timestamp=8)
    stamp = struct.pack("<Q", 77)
    record = batch(1, [put(b"key" + stamp, b"v"), b"\x0f" + string(b"a" + stamp) + string(b"b" + stamp)])
    assert e.record(record, 0, len(record), 1) == 0
    assert e.take().blob == entry(encode_row(Op.UPSERT, (b"key", stamp), after=(b"v",))) + entry(
        encode_row(Op.DELETE_RANGE, (b"a", stamp), key_end=(b"b", stamp))
    )
    e.commit_timestamp = struct.pack("<Q", 99)
    record = batch(3, [put(b"key" + bytes(8), b"v")])
    assert e.record(record, 0, len(record), 1) == 0
    assert e.take().blob == entry(encode_row(Op.UPSERT, (b"key", e.commit_timestamp), after=(b"v",)))
    record = batch(4, [put(b"short", b"v")])
    with pytest.raises(DecodeError, match="shorter than its column family's timestamp"):
        e.record(record, 0, len(record), 1)


def test_columns_grow_and_are_taken(write_batch: ModuleType) -> None:
    e = encoder(write_batch)
    record = batch(1, [delete(b"%d" % i) for i in range(5000)])
    for i in range(3000):
        single = batch(10_000 + i, [delete(b"x")])
        assert e.record(single, 0, len(single), i) == 0
    e.expected = -1
    assert e.record(record, 0, len(record), 1) == 0
    piece = e.take()
    assert (len(piece.ends), len(piece.tx_number)) == (8000, 3001)
    assert piece.tx_end.tolist()[-2:] == [3000, 8000]
    assert (e.updates, e.used, e.take().ends.tolist()) == (0, 0, [])


def test_records_stop_at_the_limit_and_go_on(write_batch: ModuleType) -> None:
    writer = WalWriter()
    for i in range(200):
        writer.add(batch(i + 1, [put(b"k%03d" % i, b"v" * 1000)]))
    data = bytes(writer.data)
    frames = Frames()
    frame(data, 0, 0, 5, frames, False, False)
    e = encoder(write_batch)
    at, blob, rounds = 0, b"", 0
    while at < frames.count:
        at = e.records(data, frames, at, frames.count, 0, 10_000)
        assert e.status == write_batch.Status.OK
        blob += e.take().blob
        rounds += 1
    assert rounds > 15
    assert blob == b"".join(entry(encode_row(Op.UPSERT, (b"k%03d" % i,), after=(b"v" * 1000,))) for i in range(200))
    with pytest.raises(ValueError, match="out of range"):
        e.records(data, frames, 0, frames.count + 1, 0, 10)


def test_bounds_are_checked(write_batch: ModuleType) -> None:
    with pytest.raises(ValueError, match="max_update_bytes"):
        write_batch.Encoder(0)
    e = encoder(write_batch)
    with pytest.raises(ValueError, match="out of range"):
        e.begin(b"abc", 2, 9)
    with pytest.raises(ValueError, match="out of range"):
        e.entries(b"abc", 2, 1, True)


# --- rare: the rare kinds: what cannot be read right is refused or said to be unavailable ---


def test_wide_columns_of_a_newer_version_are_unavailable() -> None:
    assert wide_columns(varint(2) + b"whatever") == (UNAVAILABLE, UNAVAILABLE)
    assert wide_columns(varint(1) + varint(0)) == (None, {})


@pytest.mark.parametrize(
    ("entity", "field"),
    [
        (b"", "version"),
        (b"\x01", "count"),
        (b"\x01\x09", "columns in 2 bytes"),
        (b"\x01\x01", "name size"),
        (b"\x01\x01" + string(b"n"), "value size"),
        (b"\x01\x01" + string(b"n") + varint(5) + b"abc", "do not add up"),
        (b"\xff\xff\xff\xff\x7f", "version"),
    ],
)
def test_broken_wide_columns_name_the_field(entity: bytes, field: str) -> None:
    with pytest.raises(DecodeError, match=field):
        wide_columns(entity)


def test_a_timed_put_without_its_time_is_refused() -> None:
    with pytest.raises(DecodeError, match="timed put"):
        rare_update(0x18, b"k", b"short", 0, b"", False)


def test_too_large_updates_keep_their_key() -> None:
    assert rare_update(0x00, b"k", b"", 0, b"", True) == encode_row(Op.DELETE, (b"k",), too_large=True)
    assert rare_update(0x02, b"k", b"", 0, b"", True) == encode_row(Op.MERGE, (b"k",), too_large=True)


def test_the_hash_of_a_key_with_a_timestamp_is_of_both_columns() -> None:
    assert rare_key(b"key12345678", 8, b"") == b"\x0a\x03key" + b"\x0a\x0812345678"
    assert rare_key(b"key", 0, b"") == b"\x0a\x03key"
