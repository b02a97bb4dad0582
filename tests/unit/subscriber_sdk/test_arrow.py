"""Columns of updates: what they hold is what the updates say of themselves."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from subscriber_sdk import arrow
from subscriber_sdk.arrow import BatchInfo, RecordBatches
from subscriber_sdk.testing import body_of, read, update
from subscriber_sdk.testing.changes import Change
from tests.support.hot import compiled, forms, interpreted
from wormhole.model.errors import DecodeError, ProtocolError, UsageError, WormholeError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire import arrow_message, cells, columns, values
from wormhole.wire.body import parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.update import Batch, Update

KINDS: Final[Mapping[str, st.SearchStrategy[Value]]] = {
    "bytes": st.binary(max_size=20),
    "text": st.text(max_size=20)
    | st.sampled_from(['{"a": 1}', "0000-00-00", "2024-02-30 25:00:00", "\\xff\\xfe", "x" * 3000]),
    "hash": st.text("0123456789abcdef", min_size=4, max_size=4),
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint": st.integers(1 << 63, (1 << 64) - 1),
    "double": st.floats(),
    "bool": st.booleans(),
    "decimal": st.decimals(allow_nan=True)
    | st.sampled_from([Decimal("0.00"), Decimal("-" + "9" * 65), Decimal("1E+3")]),
    "entries": st.dictionaries(st.binary(max_size=3), st.binary(max_size=3), max_size=3),
}


def updates_of(*bodies: bytes, schemas: Sequence[Schema], shard: str = "s", epoch: int = 3) -> list[Update]:
    known = {schema.id: schema for schema in schemas}
    return [
        one for body in bodies for one in Batch(parse_body(body), shard, epoch, False, known.__getitem__, 7).updates()
    ]


def from_changes(*changes: Change, number: int = 1, ends: bool = True, committed_at_us: int = 0) -> list[Update]:
    body = body_of(changes, number=number, ends=ends, committed_at_us=committed_at_us)
    return updates_of(body, schemas=[change.schema for change in changes])


def batches(updates: Sequence[Update], *, before: bool = False) -> Iterator[tuple[Sequence[Update], pa.RecordBatch]]:
    made, at = RecordBatches(before=before), 0
    while at < len(updates):
        count, batch = made.take(updates, at)
        batch.validate(full=True)
        assert batch.num_rows == count > 0
        yield updates[at : at + count], batch
        at += count


def only(updates: Sequence[Update], *, before: bool = False) -> pa.RecordBatch:
    ((_, batch),) = batches(updates, before=before)
    return batch


def plain(value: Value, type_: bytes) -> object:
    """As the cell of a column is to have it."""
    if value is UNAVAILABLE or value is None:
        return None
    if isinstance(value, Mapping):
        return list(value.items())
    if type_ == b"double":
        assert isinstance(value, float)
        return "nan" if math.isnan(value) else struct.pack("<d", value)  # the sign of a NaN has no meaning
    if type_ == b"decimal":
        return str(value)
    return value


def cell(batch: pa.RecordBatch, name: str, row: int) -> object:
    type_ = batch.schema.field(name).metadata[b"wormhole"]
    value = batch.column(name)[row].as_py()
    if value is None:
        return None
    return plain(Decimal(value) if type_ == b"decimal" else value, type_)


def check_row(batch: pa.RecordBatch, row: int, update: Update) -> None:
    key = dict(zip([c.name for c in update.schema.key], update.key, strict=bool(update.key)))
    image = dict(update.after or update.before or {})
    for name, value in key.items():
        if image.get(name, UNAVAILABLE) is UNAVAILABLE:
            image[name] = value
    names = dict.fromkeys((*update.schema.names, *(c.name for c in update.schema.key)))
    missing = []
    for name in names:
        value = image.get(name, UNAVAILABLE)
        if value is UNAVAILABLE:
            missing.append(name)
        assert cell(batch, name, row) == plain(value, batch.schema.field(name).metadata[b"wormhole"])
    said = {name: batch.column(name)[row].as_py() for name in batch.schema.names if name.startswith("_")}
    assert (said["_unavailable"] or []) == missing
    assert f"{said['_tx']}:{said['_index']}" == update.id
    assert said["_op"] == update.op.value
    assert said["_place"][:20] == update.position.to_bytes()
    assert said["_place"][20] == update.in_unfinished
    assert int.from_bytes(said["_place"][21:], "big") == update.index
    assert (said["_ends_tx"], said["_entered"], said["_left"]) == (update.ends_transaction, update.entered, update.left)
    assert said["_committed_at"] == update.committed_at
    if "_before" in said:
        assert (said["_before"] is None) == (update.before is None)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Schema, list[bytes]]:
    types = draw(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=5))
    own = tuple(Column(f"c{i}", type_) for i, type_ in enumerate(types))
    key = own[:1] if draw(st.booleans()) else (Column("id", "int"),)
    schema = Schema("shop.t", key, own)

    def value(column: Column) -> Value:
        other = KINDS["bytes"] if draw(st.integers(0, 30)) == 7 else KINDS[column.type]
        return draw(st.one_of(other, other, st.none(), st.just(UNAVAILABLE)))

    def image(columns: Sequence[Column]) -> list[Value]:
        return [value(column) for column in columns]

    made = []
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from([*Op]))
        made.append(
            encode_row(
                op,
                image(key) if op is not Op.TRUNCATE else (),
                after=image(own) if draw(st.booleans()) else (),
                before=image(own) if draw(st.booleans()) else (),
                old_key=image(key) if draw(st.booleans()) else (),
                too_large=draw(st.booleans()),
            )
        )
    return schema, made


LOADED: Final = [
    {module: interpreted(module.__name__) for module in (columns, values)},
    *([{module: compiled(module.__name__) for module in (columns, values)}] if "compiled" in forms() else []),
]


@pytest.mark.parametrize("form", LOADED, ids=forms())
@given(given=rows(), marked=st.booleans(), ends=st.booleans(), index=st.integers(0, 5), at=st.integers(0, 1 << 50))
def test_cells_are_what_the_updates_say(
    form: dict[Any, Any], given: tuple[Schema, list[bytes]], marked: bool, ends: bool, index: int, at: int
) -> None:
    schema, encoded = given
    changes = [Change(schema, row, i % 3 if marked else 0) for i, row in enumerate(encoded)]
    body = body_of(changes, first_index=index, ends=ends, committed_at_us=at)
    with pytest.MonkeyPatch.context() as patch:
        for loaded in form.values():
            for name in loaded.__all__:
                for user in (arrow, cells, arrow_message):
                    if hasattr(user, name):
                        patch.setattr(user, name, getattr(loaded, name))
        seen = 0
        for part, batch in batches(updates_of(body, schemas=[schema]), before=True):
            for row, one in enumerate(part):
                check_row(batch, row, one)
            seen += len(part)
    assert seen == len(encoded)


@pytest.mark.parametrize("form", LOADED, ids=forms())
@given(given=rows(), place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_bytes_are_refused_that_an_update_refuses(
    form: dict[Any, Any], given: tuple[Schema, list[bytes]], place: int, byte: int, cut: bool
) -> None:
    schema, encoded = given
    row = bytearray(encoded[0])
    at = place % len(row) if row else 0
    row[at : len(row) if cut else at + 1] = bytes((byte,))
    (one,) = from_changes(Change(schema, bytes(row)))
    refused = False
    try:
        _ = one.op, one.key, one.after, one.before
        check_row(only([one], before=True), 0, one)
    except WormholeError:
        refused = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "locate", form[values].locate)
        try:
            RecordBatches(before=True).take([one], 0)
        except WormholeError:
            assert refused
        else:
            assert not refused


def test_one_row_for_each_change_with_its_metadata() -> None:
    made = from_changes(
        update("shop.t", key={"id": 1}, after={"id": 1, "name": "a"}),
        update("shop.t", key={"id": 1}, before={"id": 1, "name": "a"}, after={"id": 1, "name": None}),
        update("shop.t", key={"id": 2}, before={"id": 1, "name": "b"}, after={"id": 2, "name": "b"}, old_key=1),
        update("shop.t", key={"id": 2}, before={"id": 2, "name": "b"}),
        committed_at_us=1_000_000,
    )
    batch = only(made, before=True)
    assert batch.column("name").to_pylist() == ["a", None, "b", "b"]
    assert batch.column("_op").to_pylist() == ["insert", "update", "update", "delete"]
    assert batch.column("_old_key").to_pylist() == [None, None, {"id": 1}, None]
    assert batch.column("_before").to_pylist()[:2] == [None, {"id": 1, "name": "a"}]
    assert batch.column("_tx").to_pylist() == ["test:1"] * 4
    assert batch.column("_ends_tx").to_pylist() == [False, False, False, True]
    assert BatchInfo.of(batch) == BatchInfo("shop.t", "s", 3, 7, False, ("id",))


def test_null_and_unavailable() -> None:
    partial = update("shop.t", key={"id": 1}, before={"a": "x", "b": "y"}, after={"a": None})
    batch = only(from_changes(partial))
    assert batch.column("a").to_pylist() == [None]
    assert batch.column("b").to_pylist() == [None]
    assert batch.column("_unavailable").to_pylist() == [["b"]]


def test_a_batch_ends_at_another_table_and_at_another_schema() -> None:
    one, other = update("shop.t", key={"id": 1}, after={"a": 1}), update("shop.u", key={"id": 1}, after={"a": 1})
    wider = update("shop.t", key={"id": 1}, after={"a": 1, "b": 1})
    made = [
        (BatchInfo.of(batch).table, len(part))
        for part, batch in batches(from_changes(one, one, other, one, wider, wider))
    ]
    assert made == [("shop.t", 2), ("shop.u", 1), ("shop.t", 1), ("shop.t", 2)]


def test_a_batch_ends_at_a_value_of_another_type() -> None:
    schema = Schema("shop.t", (Column("id", "int"),), (Column("a", "text"),))
    many: list[Value] = [None, "x", b"\xff", None, b"\xfe", "y"]
    changes = [Change(schema, encode_row(Op.INSERT, (i,), after=(value,))) for i, value in enumerate(many)]
    made = [
        (batch.schema.field("a").type, batch.column("a").to_pylist()) for _, batch in batches(from_changes(*changes))
    ]
    assert made == [
        (pa.string(), [None, "x"]),
        (pa.binary(), [b"\xff", None, b"\xfe"]),
        (pa.string(), ["y"]),
    ]


def test_alternating_types_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema("shop.t", (Column("id", "int"),), (Column("a", "text"),))
    changes = [Change(schema, encode_row(Op.INSERT, (i,), after=("x" if i % 2 else b"x",))) for i in range(2000)]
    looked: list[int] = []

    def counted(*given: Any) -> None:
        looked.append(given[3])
        values.locate(*given)

    monkeypatch.setattr(cells, "locate", counted)
    assert sum(1 for _ in batches(from_changes(*changes))) == 2000
    assert sum(looked) < 2000 * 80


def test_an_update_of_a_list_with_gaps_is_its_own() -> None:
    made = from_changes(*(update("shop.t", key={"id": i}, after={"id": i}) for i in range(6)))
    parts = [batch.column("id").to_pylist() for _, batch in batches([made[0], made[1], made[3], made[5]])]
    assert parts == [[0, 1], [3], [5]]


def test_an_update_that_is_delivered_again() -> None:
    change = update("t", key=1, after={"a": 1})
    first, last = from_changes(change, change)
    for original, ends in ((first, False), (last, True)):
        again = updates_of(original.encoded()[1], schemas=[change.schema])
        batch = only(again)
        assert batch.column("_ends_tx").to_pylist() == [ends]
        assert batch == only([original.detach()])


def test_several_transactions_and_batches() -> None:
    changes = [update("shop.t", key={"id": i}, after={"id": i}) for i in range(3)]
    made = [*from_changes(*changes), *from_changes(*changes, number=2)]
    assert [batch.column("_tx").to_pylist() for _, batch in batches(made)] == [["test:1"] * 3, ["test:2"] * 3]


def test_a_store_of_bytes_has_its_key_as_a_column() -> None:
    put = update("cf", key={"key": b"k"}, after={"value": b"v"}, op=Op.UPSERT)
    drop = update("cf", key={"key": b"k"}, op=Op.DELETE_RANGE, key_end=b"l")
    (_, one), (_, other) = batches(from_changes(put, drop))
    assert (one.column("key").to_pylist(), one.column("value").to_pylist()) == ([b"k"], [b"v"])
    assert other.column("_key_end").to_pylist() == [{"key": b"l"}]


def test_existing_rows() -> None:
    """Their places are behind those of the changes at the same place of the log."""
    row, change = read("shop.t", key={"id": 1}, after={"id": 1}), update("shop.t", key={"id": 2}, after={"id": 2})
    found = only(updates_of(body_of([row], source="read:3"), schemas=[row.schema]))
    assert found.column("_op").to_pylist() == ["read"]
    assert found.column("_committed_at").to_pylist() == [None]
    assert found.column("_place")[0].as_py() > only(from_changes(*[change] * 99)).column("_place")[98].as_py()


def test_names_that_are_taken() -> None:
    batch = only(from_changes(update("shop.t", key={"_op": 1}, after={"_op": 1, "a": 1, "A": 2})))
    assert batch.schema.names[:3] == ["_op_", "a", "A_"]
    assert BatchInfo.of(batch).key == ("_op_",)


def test_what_is_no_row_is_named_as_a_row_would_be() -> None:
    good = update("shop.t", key={"id": 1}, after={"a": "x"})
    bad = replace(good, row=good.row[:-2] + b"\x12\xff")
    made = from_changes(good, bad)
    with pytest.raises(DecodeError, match="update test:1:1 is no valid row"):
        RecordBatches().take(made, 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (encode_row(Op.INSERT, (1,), after=(1, 2)), "2 values for the 1 columns"),
        (encode_row(Op.INSERT, (1, 2), after=(1,)), "2 values for the 1 columns"),
        (b"\x08\x63" + encode_row(Op.INSERT, (1,), after=(1,))[2:], "operation 99 is not known"),
        (b"\x08\xff\x7f" + encode_row(Op.INSERT, (1,), after=(1,))[2:], "operation 16383 is not known"),
        (encode_row(Op.INSERT, (1,))[:6] + b"\x1a\x03\x3a\x01x", "no decimal number"),
    ],
)
def test_bad_rows(row: bytes, message: str) -> None:
    schema = Schema("shop.t", (Column("id", "int"),), (Column("a", "int"),))
    with pytest.raises((ProtocolError, DecodeError), match=message):
        RecordBatches().take(from_changes(Change(schema, row)), 0)


def test_a_column_of_more_bytes_than_arrow_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_MOST_BYTES", 100)
    changes = [update("shop.t", key={"id": i}, after={"a": "x" * 60}) for i in range(4)]
    assert [len(part) for part, _ in batches(from_changes(*changes))] == [1, 1, 1, 1]


def test_a_record_batch_of_somebody_else() -> None:
    with pytest.raises(UsageError, match="none that on_arrow got"):
        BatchInfo.of(pa.RecordBatch.from_pydict({"a": [1]}))
