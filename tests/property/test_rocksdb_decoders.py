"""RocksDB's decoders on structured input: compiled = interpreted = a straightforward reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from datastores.rocksdb.decode.log_format import Frames, frame
from tests.support import hot
from tests.support.rocksdb_wal import BLOCK, WalWriter, batch, delete, put, string, varint
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

FRAMING = "datastores.rocksdb.decode.log_format"
BATCHES = "datastores.rocksdb.decode.write_batch"
RUNS = "datastores.common.encode.runs"


def both(name: str) -> list[ModuleType]:
    """The forms that are here: in a tree that is meant to be interpreted there is only one."""
    return [hot.interpreted(name), *([hot.compiled(name)] if "compiled" in hot.forms() else [])]


# Varints at the ends of every width, and what is longer than 32 bits.
odd_varints = st.one_of(
    st.sampled_from([0, 1, 127, 128, 16383, 16384, (1 << 21) - 1, 1 << 28, (1 << 32) - 1]).map(varint),
    st.sampled_from(
        [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff\x01", b"\x80" * 11, b"\x80\x00"]
    ),
)
short = st.binary(max_size=12)
sizes = st.sampled_from([0, 1, 47, 48, 49, 127, 128, 255, 256, 257, 5000])
plain = st.one_of(
    st.builds(put, short, st.builds(bytes, sizes), st.none() | st.integers(0, 300)),
    st.builds(delete, short, st.none() | st.integers(0, 300)),
    st.builds(lambda k, a, b: bytes([k]) + string(a) + string(b), st.sampled_from([0x02, 0x0F, 0x11]), short, short),
)
strange = st.one_of(
    st.builds(lambda k, v, rest: bytes([k]) + v + rest, st.integers(0, 0x1B), odd_varints, short),
    st.builds(
        lambda k, f, v, rest: bytes([k]) + f + v + rest,
        st.sampled_from([4, 5, 6, 8, 14, 16, 23]),
        odd_varints,
        odd_varints,
        short,
    ),
    st.binary(max_size=20),
)


def outcome(module: ModuleType, step: Callable[[Any], int], most: int) -> object:
    """Everything a caller can see after one step."""
    e = module.Encoder(most)
    for family in range(1 << 4):
        e.add_family(family, family, 8 if family == 6 else 0, family % 3)
    try:
        result: object = step(e)
    except DecodeError as error:
        return str(error)
    seen = (result, e.status, e.at, e.counted, e.problem, e.expected, e.sequence, e.too_large, e.updates)
    need = e.need if e.status in {module.Status.MORE, module.Status.SKIP} else 0
    piece = e.take()
    return seen, need, piece.blob, list(piece.ends), list(piece.schema_of), list(piece.shard_of), list(piece.tx_number)


@given(
    st.lists(plain | strange, max_size=12),
    st.integers(0, (1 << 64) - 1) | st.integers(0, 20),
    st.sampled_from([1, 20, 1 << 20]),
)
def test_both_forms_see_the_same_in_any_batch(entries: list[bytes], sequence: int, most: int) -> None:
    record = batch(sequence, entries)
    body = record[12:]
    seen = [outcome(m, lambda e: e.record(record, 0, len(record), 7), most) for m in both(BATCHES)]
    assert all(other == seen[0] for other in seen)
    seen = [outcome(m, lambda e: e.entries(body, 0, len(body), False), most) for m in both(BATCHES)]
    assert all(other == seen[0] for other in seen)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "merge", "range"]), short, st.builds(bytes, sizes)), max_size=30
    )
)
def test_batches_are_what_encode_row_writes(rows: list[tuple[str, bytes, bytes]]) -> None:
    entries, expected = [], b""
    for kind, key, value in rows:
        if kind == "put":
            entries.append(put(key, value))
            expected += entry(encode_row(Op.UPSERT, (key,), after=(value,)))
        elif kind == "delete":
            entries.append(delete(key))
            expected += entry(encode_row(Op.DELETE, (key,)))
        elif kind == "merge":
            entries.append(b"\x02" + string(key) + string(value))
            expected += entry(encode_row(Op.MERGE, (key,), after=(value,)))
        else:
            entries.append(b"\x0f" + string(key) + string(value))
            expected += entry(encode_row(Op.DELETE_RANGE, (key,), key_end=(value,)))
    record = batch(1, entries)
    for module in both(BATCHES):
        e = module.Encoder(1 << 20)
        e.add_family(0, 0, 0, 0)
        assert e.record(record, 0, len(record), 1) == module.Status.OK
        assert e.take().blob == expected


def reference(data: bytes) -> list[bytes]:
    """Records of an intact or damaged file of short headers, up to the first fragment that is none."""
    found: list[bytes] = []
    parts: list[bytes] = []
    at = 0
    while True:
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        header = data[at : at + 7]
        length = int.from_bytes(header[4:6], "little")
        if len(header) < 7 or length > left - 7 or at + 7 + length > len(data):
            return found
        crc = crc32c(data[at + 6 : at + 7 + length])
        if int.from_bytes(header[:4], "little") != ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF:
            return found
        kind = header[6]
        if kind not in {1, 2, 3, 4} or (kind in {3, 4}) != bool(parts):
            return found
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in {1, 4}:
            found.append(b"".join(parts))
            parts = []


record_sizes = st.sampled_from([1, 20, 300, BLOCK - 7, BLOCK - 8, BLOCK - 20, BLOCK, 70_000])


@given(
    st.lists(record_sizes, min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), max_size=2),
    st.floats(0, 1),
)
def test_framing_is_the_reference_in_both_forms(chosen: list[int], flips: list[tuple[float, int]], cut: float) -> None:
    writer = WalWriter()
    for i, size in enumerate(chosen):
        writer.add(bytes([i + 1]) * size)
    data = writer.data
    for where, bit in flips:
        data[int(where * (len(data) - 1))] ^= 1 << bit
    damaged = bytes(data[: int(cut * len(data)) if cut < 0.9 else len(data)])
    seen = []
    for module in both(FRAMING):
        frames = module.Frames()
        stopped = module.frame(damaged, 0, 0, 5, frames, False, False)
        columns = [list(column[: frames.count]) for column in (frames.starts, frames.ends, frames.heads, frames.kinds)]
        seen.append((stopped, frames.fault_at, columns))
    assert all(other == seen[0] for other in seen)
    records: list[bytes] = []
    starts, ends, _, kinds = seen[0][2]
    for start, end, kind in zip(starts, ends, kinds, strict=True):
        if kind in {1, 2}:
            records.append(damaged[start:end])
        else:
            records[-1] += damaged[start:end]
    assert records == reference(damaged)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6), min_size=1, max_size=8),
    st.booleans(),
    st.integers(0, 3),
)
def test_runs_hold_each_update_once_per_shard(
    transactions: list[list[tuple[int, int]]], unfinished: bool, first_index: int
) -> None:
    """Shard 3 stands for a barrier."""
    schemas = tuple(Schema(f"t{i}", (Column("key", "bytes"),), (Column("value", "bytes"),)) for i in range(3))
    for runs_module in both(RUNS):
        write_batch = hot.interpreted(BATCHES)
        e = write_batch.Encoder(1 << 20)
        names = {0: "a", 1: "b", 2: "c"}
        for shard in range(4):
            for schema in range(3):
                e.add_family((shard * 3 + schema) * 2, schema, 0, write_batch.ALL_SHARDS if shard == 3 else shard)
        expected: dict[str, list[tuple[bytes, int, int, int]]] = {name: [] for name in names.values()}
        sequence = 1
        for t, rows in enumerate(transactions):
            e.sequence = sequence
            data = b"".join(delete(b"%d-%d" % (t, i), shard * 3 + schema) for i, (shard, schema) in enumerate(rows))
            e.entries(data, 0, len(data), True)
            for i, (shard, schema) in enumerate(rows):
                row = entry(encode_row(Op.DELETE, (b"%d-%d" % (t, i),)))
                for ordinal, name in names.items():
                    if shard in {ordinal, 3}:
                        expected[name].append((row, schema, sequence, i + (first_index if t == 0 else 0)))
            if unfinished and t == len(transactions) - 1:
                e.open_transaction(t)
            elif rows or t == 0:
                e.end_transaction(t)
            sequence += len(rows) + 1
        piece = e.take()
        times = type(piece.ends)("q", range(len(piece.tx_number)))
        runs = runs_module.runs_of(piece, names, schemas, ("src",), 9, times, first_index, set())
        for name, rows_expected in expected.items():
            if not rows_expected:
                assert name not in runs or not runs[name].ends
                continue
            run = runs[name]
            found = []
            for i, end in enumerate(run.ends):
                tx = next((t for t, n in enumerate(run.tx_end) if i < n), len(run.tx_end))
                begin = run.ends[i - 1] if i else 0
                before = run.tx_end[tx - 1] if tx else 0
                index = run.indexes[i] if run.indexes else i - before + (run.first_index if tx == 0 else 0)
                schema = run.schemas[run.schema_index[i] if run.schema_index else 0]
                found.append((run.blob[begin:end], schemas.index(schema), run.tx_number[tx], index))
            assert found == rows_expected


def test_the_writer_of_these_tests_frames_like_the_decoder() -> None:
    writer = WalWriter()
    writer.add(b"x" * 100_000)
    frames = Frames()
    assert frame(bytes(writer.data), 0, 0, 1, frames, False, False)[0] == len(writer.data)
    assert frames.count == 4
