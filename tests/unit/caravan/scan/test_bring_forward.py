"""Rows of a chunk become those of the place where it enters, by the changes between."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from caravan.scan.bring_forward import BroughtForward
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_key, decode_row, encode_key, encode_row, values_of
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.v1 import update_pb2

SCHEMA = Schema("t", (Column("id", "int"),), (Column("a", "int"), Column("b", "int")))
OTHER = Schema("u", SCHEMA.key, SCHEMA.columns)
PLACE = LogPosition(1, 1, 1)

ROWS: dict[int, tuple[Value, ...]] = {1: (10, 11), 2: (20, 21), 3: (30, 31)}


def change(op: Op, key: int | None, *after: Value, old: int | None = None, too_large: bool = False) -> bytes:
    return encode_row(
        op,
        () if key is None else (key,),
        after=after,
        old_key=() if old is None else (old,),
        too_large=too_large,
    )


def forward(*changes: bytes, schema: Schema = SCHEMA, shard: str = "s", row: bytes | None = None) -> BroughtForward:
    rows = [("s", encode_key((key,)), encode_row(Op.READ, (key,), after=values)) for key, values in ROWS.items()]
    if row is not None:
        rows[0] = ("s", encode_key((1,)), row)
    found = BroughtForward("t", SCHEMA, rows)
    builder = RunsBuilder()
    builder.begin("mem", 1, 0, PLACE)
    for data in changes:
        builder.add((shard,), schema, data)
    builder.end(PLACE)
    for name, run in builder.take().items():
        found.apply(name, run)
    return found


def rows(found: BroughtForward) -> dict[object, tuple[Value, ...]]:
    sent: dict[object, tuple[Value, ...]] = {}
    for update in found.rows().get("s", ()):
        row = decode_row(update)
        assert row.op == update_pb2.READ
        (sent_key,) = values_of(row.key)
        sent[sent_key] = values_of(row.after)
    return sent


def keys(found: Iterable[bytes]) -> list[Value]:
    return sorted(decode_key(key)[0] for key in found)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("changes", "sent", "left_out", "again"),
    [
        (
            [change(Op.UPDATE, 1, 1, 2), change(Op.UPDATE, 2, UNAVAILABLE, 3), change(Op.UPSERT, 3, 5, None)],
            {1: (1, 2), 2: (20, 3), 3: (5, None)},
            [],
            [],
        ),
        ([change(Op.DELETE, 1), change(Op.INSERT, 9, 1, 1), change(Op.DELETE, 9)], {1: None}, [], []),
        ([change(Op.INSERT, 9, 1, 1), change(Op.UPDATE, 8, UNAVAILABLE, 1)], {}, [8, 9], []),
        ([change(Op.UPDATE, 9, 1, 2, old=1)], {1: None}, [9], []),
        ([change(Op.UPDATE, 9, UNAVAILABLE, 2, old=1)], {1: None}, [9], [9]),
        ([change(Op.UPDATE, 9, UNAVAILABLE, 2, old=8)], {}, [9], [9]),
        (
            [change(Op.UPDATE, 9, UNAVAILABLE, 2, old=1), change(Op.UPDATE, 7, UNAVAILABLE, 2, old=9)],
            {1: None},
            [7],
            [7],
        ),
        ([change(Op.UPDATE, 2, UNAVAILABLE, 21, old=9)], {2: (20, 21)}, [], []),
    ],
    ids=["a whole image replaces the row, a partial one lies over it", "what is gone is not sent and may be deleted",
         "touched keys that are not sent are left out", "a key that moved whole comes by the log",
         "a key that moved in part is read again", "also from outside of the chunk", "however often it moved",
         "a moved row that the chunk shows already stays"],
)  # fmt: skip
def test_what_becomes_of_the_rows(
    changes: list[bytes], sent: dict[int, tuple[Value, ...] | None], left_out: list[int], again: list[int]
) -> None:
    found = forward(*changes)
    assert rows(found) == {key: row for key, row in (ROWS | sent).items() if row is not None}
    assert (keys(found.left_out()), keys(found.again())) == (left_out, again)


def test_bytes_of_a_row_are_those_of_the_log() -> None:
    found = forward(change(Op.UPDATE, 1, 1, 2))
    assert next(iter(found.rows()["s"])) == encode_row(Op.READ, (1,), after=(1, 2))


def test_after_a_truncate_the_rows_are_read_again() -> None:
    """It may be of one partition: nothing says which rows are left."""
    assert "removed" in forward(change(Op.UPSERT, 9, 1, 1), change(Op.TRUNCATE, None)).spoiled
    assert "removed" in forward(change(Op.TRUNCATE, None), schema=Schema("t", (), ()), shard="other").spoiled


@pytest.mark.parametrize(
    "data",
    [
        change(Op.UPDATE, 1, too_large=True),
        change(Op.MERGE, 1, 1, 1),
        change(Op.INSERT, 1, UNAVAILABLE, 1),
        change(Op.UPSERT, 1, UNAVAILABLE, 1),
        change(Op.UPDATE, 1, 5),
        update_pb2.Update(
            op=update_pb2.UPDATE,
            key=[update_pb2.Value(int=1)],
            after=[update_pb2.Value(), update_pb2.Value(int=1)],
        ).SerializeToString(),
    ],
)
def test_what_cannot_be_brought_forward_is_read_again(data: bytes) -> None:
    found = forward(data)
    assert sorted(rows(found)) == [2, 3]  # type: ignore[type-var]
    assert keys(found.again()) == keys(found.left_out()) == [1]
    # A later change of some columns does not help, and one that says it all brings the key back by the log.
    assert keys(forward(data, change(Op.UPDATE, 1, UNAVAILABLE, 1)).again()) == [1]
    assert keys(forward(data, change(Op.DELETE, 1)).again()) == []


def test_a_row_without_values_cannot_be_overlaid() -> None:
    too_large = encode_row(Op.READ, (1,), too_large=True)
    assert keys(forward(change(Op.UPDATE, 1, UNAVAILABLE, 1), row=too_large).again()) == [1]
    assert rows(forward(change(Op.UPDATE, 1, 4, 5), row=too_large))[1] == (4, 5)


def test_a_range_of_bytes_is_deleted() -> None:
    schema = Schema("t", (Column("key", "bytes"),), (Column("value", "bytes"),))
    all_keys = (b"a", b"b", b"c", b"d")
    found = BroughtForward(
        "t", schema, [("s", encode_key((key,)), encode_row(Op.READ, (key,), after=(b"v",))) for key in all_keys]
    )
    builder = RunsBuilder()
    builder.begin("mem", 1, 0, PLACE)
    builder.add(("s",), schema, encode_row(Op.UPSERT, (b"bb",), after=(b"v",)))
    builder.add(("s",), schema, encode_row(Op.DELETE_RANGE, (b"b",), key_end=(b"d",)))
    builder.end(PLACE)
    found.apply("s", builder.take()["s"])
    assert [values_of(decode_row(row).key) for row in found.rows()["s"]] == [(b"a",), (b"d",)]
    assert found.left_out() == ()


def test_other_columns_or_an_unknown_operation_spoil_the_chunk() -> None:
    newer = Schema("t", SCHEMA.key, (*SCHEMA.columns, Column("c", "int")))
    assert "columns" in forward(change(Op.UPDATE, 1, 1, 2, 3), schema=newer).spoiled
    strange = update_pb2.Update(op=77, key=[update_pb2.Value(int=1)]).SerializeToString()  # type: ignore[arg-type]
    assert "77" in forward(strange).spoiled
    ranged = encode_row(Op.DELETE_RANGE, (1,), key_end=(2,))
    assert "order" in forward(ranged).spoiled


def test_too_many_touched_keys_spoil_it() -> None:
    schema = Schema("t", (Column("id", "bytes"),), ())
    found = BroughtForward("t", schema, ())
    builder = RunsBuilder()
    builder.begin("mem", 1, 0, PLACE)
    for i in range(600):
        builder.add(("s",), schema, encode_row(Op.DELETE, (b"%2000d" % i,)))
    builder.end(PLACE)
    found.apply("s", builder.take()["s"])
    assert found.spoiled


def test_other_tables_do_not_matter() -> None:
    assert rows(forward(change(Op.DELETE, 1), schema=OTHER)) == ROWS
