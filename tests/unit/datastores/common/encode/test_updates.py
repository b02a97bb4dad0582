"""Updates as columns: images, shards and transactions, in both forms."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest

from datastores.common.encode.entries import Entries
from datastores.common.encode.piece import ALL_SHARDS, HASHED, Piece
from tests.support.hot import hot_module
from wormhole.model.schema import Column, Schema
from wormhole.model.sharding import shard_of_hash
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row, entry

# --- row updates ---


entries = hot_module("datastores.common.encode.entries")
row_updates = hot_module("datastores.common.encode.row_updates")

_TEXT = 0x12
_LONG = "x" * 300
_NUMBERS = {Op.INSERT: 1, Op.UPDATE: 2, Op.DELETE: 3}


def image(values: tuple[Any, ...], *, after: bool, limit: int = 1 << 20) -> Any:
    """The row with these texts, of which the log lacks the unavailable ones."""
    made = Entries(limit)
    made.hold(len(values))
    used = 0
    for c, value in enumerate(values):
        made.starts[c] = used
        made.out[used] = 0x1A if after else 0x22
        made.present[c] = value is not UNAVAILABLE
        if value is UNAVAILABLE:
            made.absent += 1
            used = made.unavailable(used + 1)
        elif made.fits(used, b"\1" + bytes(9), c, len(value)):
            used = made.put(used + 1, _TEXT, f"!{value}".encode(), 1, len(value))
        else:
            used = made.leave_out(used + 1)
    made.starts[len(values)] = made.used = used
    return made


def changed(row_updates: ModuleType, op: Op, before: Any, after: Any, *, key: Any = (0,), **more: Any) -> Any:
    images = image(before or (), after=False), image(after or (), after=True)
    made = row_updates.RowUpdates(*images, more.get("most", 1 << 20), more.get("shards", 0), 64)
    table = row_updates.RowTable("shop.t", len(before or after), key, 3, HASHED if "shards" in more else 5)
    made.change(table, _NUMBERS[op], before is not None and after is not None)
    return made


def blob(made: Any) -> bytes:
    return bytes(made.updates.out[: made.updates.used])


B = UNAVAILABLE


@pytest.mark.parametrize(
    ("before", "after", "key", "expected"),
    [
        (None, ("1", _LONG), (0,), encode_row(Op.INSERT, ("1",), after=("1", _LONG))),
        (("1", "a"), None, (0,), encode_row(Op.DELETE, ("1",), before=("1", "a"))),
        (("1", "a"), ("1", "b"), (0,), encode_row(Op.UPDATE, ("1",), after=("1", "b"), before=("1", "a"))),
        (
            ("1", "a"),
            ("2", B),
            (1, 0),
            encode_row(Op.UPDATE, ("a", "2"), after=("2", "a"), before=("1", "a"), old_key=("a", "1")),
        ),
        (("1", B), (B, "b"), (0,), encode_row(Op.UPDATE, ("1",), after=("1", "b"), before=("1", B))),
        (("1", B), ("1", B), (0,), encode_row(Op.UPDATE, ("1",), after=("1", B), before=("1", B))),
        (None, ("1", B), (1,), encode_row(Op.INSERT, (B,), after=("1", B))),
    ],
)
def test_an_update_is_made_of_both_images(
    row_updates: ModuleType, before: Any, after: Any, key: Any, expected: bytes
) -> None:
    op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
    made = changed(row_updates, op, before, after, key=key)
    assert blob(made) == entry(expected)
    assert (made.updates.schemas[0], made.updates.shards[0], made.too_large) == (3, 5, 0)


def test_one_that_is_too_large_goes_without_its_values(row_updates: ModuleType) -> None:
    made = changed(row_updates, Op.UPDATE, ("1", "a" * 60), ("2", "b" * 60), most=100)
    assert blob(made) == entry(encode_row(Op.UPDATE, ("2",), old_key=("1",), too_large=True))
    assert made.too_large == 1
    large = image(("1" * 90, "a" * 90, "k" * 101), after=True, limit=100)
    assert (large.too_large, large.starts[1], large.starts[3] - large.starts[1]) == (True, 94, 8)


@pytest.mark.parametrize("key", [(0,), (1, 0)])
def test_a_key_is_split_by_its_hash(row_updates: ModuleType, key: tuple[int, ...]) -> None:
    values = b"".join(encode_row(Op.INSERT, (("1", "a")[c],))[4:] for c in key)
    for op, before, after in ((Op.INSERT, None, ("1", "a")), (Op.DELETE, ("1", "a"), None)):
        made = changed(row_updates, op, before, after, key=key, shards=8)
        assert f"log.{made.updates.shards[0]}of8" == shard_of_hash("log", values, 8)


def test_a_key_that_moves_to_another_shard_is_deleted_there_and_inserted_here(row_updates: ModuleType) -> None:
    def shard(text: str) -> int:
        value = encode_row(Op.INSERT, (text,))[4:]
        return int(shard_of_hash("log", value, 8).partition(".")[2].partition("of")[0])

    other = next(f"{n}" for n in range(2, 99) if shard(f"{n}") != shard("1"))
    made = changed(row_updates, Op.UPDATE, ("1", "a"), (other, B), shards=8)
    assert blob(made) == entry(encode_row(Op.DELETE, ("1",), before=("1", "a"))) + entry(
        encode_row(Op.INSERT, (other,), after=(other, "a"))
    )
    assert made.updates.shards[:2].tolist() == [shard("1"), shard(other)]


def test_bounds(row_updates: ModuleType) -> None:
    row = image(("1",), after=True)
    with pytest.raises(ValueError, match="max_update_bytes"):
        row_updates.RowUpdates(row, row, 0, 0, 64)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 5_000, 70_000])
def test_a_value_as_an_entry(entries: ModuleType, size: int) -> None:
    made = entries.Entries(1 << 20)
    end = made.put(1, _TEXT, b"!" + b"t" * size, 1, size)
    made.out[0] = 0x1A
    assert bytes(made.out[:end]) == encode_row(Op.INSERT, (), after=("t" * size,))[2:]
    made.release()
    assert len(made.out) <= max(4096, end + (1 << 16))


# --- runs: splitting columns over shards, in both forms; the property test compares with a model ---


runs = hot_module("datastores.common.encode.runs")

SCHEMAS = [Schema(f"t{i}", (Column("key", "bytes"),), (Column("value", "bytes"),)) for i in range(3)]
NAMES = {0: "a", 1: "b", 2: "c"}


def piece(shard_of: list[int], tx_end: list[int], transactions: int, schema_of: tuple[int, ...] = (0,)) -> Piece:
    n = len(shard_of)
    return Piece(
        bytes(range(3 * n)),
        array("I", range(3, 3 * n + 1, 3)),
        array("I", schema_of),
        array("I", shard_of),
        array("Q", range(10, 10 + transactions)),
        array("Q", range(100, 100 + transactions)),
        array("I", tx_end),
    )


def test_one_shard_takes_the_columns_as_they_are(runs: ModuleType) -> None:
    p = piece([0], [1], 1, (2,))
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 4, set())
    assert list(found) == ["a"]
    run = found["a"]
    assert run.blob is p.blob
    assert (run.schemas, run.schema_index.tolist(), run.first_index) == ((SCHEMAS[2],), [], 4)
    assert (run.tx_file.tolist(), run.tx_committed_at_us.tolist()) == ([7], [5])


def test_the_end_of_a_transaction_reaches_shards_that_had_earlier_pieces(runs: ModuleType) -> None:
    p = piece([0, 0], [2], 1)
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 9, {0, 2})
    assert set(found) == {"a", "c"}
    assert (found["c"].updates, found["c"].tx_number.tolist(), found["c"].tx_end.tolist()) == (0, [10], [0])
    assert found["a"].indexes.tolist() == [9, 10]


def test_a_barrier_goes_to_every_known_shard(runs: ModuleType) -> None:
    p = piece([0, ALL_SHARDS, 1], [3], 1, (0, 1, 0))
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 0, set())
    assert {name: run.indexes.tolist() for name, run in found.items()} == {"a": [0, 1], "b": [1, 2], "c": [1]}
    assert found["c"].schemas == (SCHEMAS[1],)
    assert found["b"].blob == p.blob[3:]
    assert found["a"].schema_index.tolist() == [0, 1]


def test_the_shards_of_the_transaction_that_goes_on(runs: ModuleType) -> None:
    assert runs.open_shards(piece([0, 1, 2], [1], 2), [0, 1, 2]) == {1, 2}
    assert runs.open_shards(piece([0, 1], [2], 1), [0, 1, 2]) == set()
    assert runs.open_shards(piece([0, ALL_SHARDS], [], 1), [0, 1, 2]) == {0, 1, 2}


def test_each_transaction_keeps_its_source(runs: ModuleType) -> None:
    p = piece([0, 1, 0], [1, 2, 3], 3)
    p.tx_source = array("I", [0, 1, 1])
    found = runs.runs_of(p, NAMES, SCHEMAS, ("s", "t"), 7, array("q", [5, 6, 7]), 0, set())
    assert {name: (run.sources, run.tx_source.tolist()) for name, run in found.items()} == {
        "a": (("s", "t"), [0, 1]),
        "b": (("s", "t"), [1]),
    }
    p.shard_of = array("I", [0])
    assert runs.runs_of(p, NAMES, SCHEMAS, ("s", "t"), 7, array("q", [5, 6, 7]), 0, set())["a"].tx_source.tolist() == [
        0,
        1,
        1,
    ]


# --- transactions: the columns of transactions: they grow, are taken and start again ---


transactions = hot_module("datastores.common.encode.transactions")


def test_columns_grow_and_keep_what_they_hold(transactions: ModuleType) -> None:
    t = transactions.Transactions()
    for i in range(3000):
        t.add(i % 3, i, 10 * i, -i)
        if i < 2999:
            t.end(i + 1)
        t.passes(i % 3, i)
    assert (t.count, t.ended, t.passed) == (3000, 2999, 3000)
    assert t.sources[:3000].tolist() == [i % 3 for i in range(3000)]
    assert t.numbers[:3000].tolist() == list(range(3000))
    assert t.offsets[:3000].tolist() == list(range(0, 30_000, 10))
    assert t.times[:3000].tolist() == list(range(0, -3000, -1))
    assert t.ends[:2999].tolist() == list(range(1, 3000))
    sources, numbers = t.take_passed()
    assert (sources.tolist(), numbers.tolist()) == ([i % 3 for i in range(3000)], list(range(3000)))
    assert t.take_passed()[1].tolist() == []


def test_after_clear_it_begins_anew(transactions: ModuleType) -> None:
    t = transactions.Transactions()
    t.add(1, (1 << 64) - 1, 5, 7)
    t.clear()
    assert (t.count, t.ended) == (0, 0)
    t.add(2, 8, 9, 10)
    t.end(4)
    assert (t.sources[0], t.numbers[0], t.offsets[0], t.times[0], t.ends[0]) == (2, 8, 9, 10, 4)
