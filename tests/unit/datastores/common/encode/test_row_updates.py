"""Updates made of the images of a row, and the shards of their keys, as `encode_row` and the model have them, in both
forms. The decoders' own tests have the images that each server's log holds."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from datastores.common.encode.entries import Entries
from datastores.common.encode.piece import HASHED
from tests.support.hot import hot_module
from wormhole.model.sharding import shard_of_hash
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row, entry

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
