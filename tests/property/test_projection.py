"""Projections, over random rows: what is left of the bytes is what is left of the values."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from decimal import Decimal
from types import ModuleType

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_filters import run_of
from tests.support.hot import hot_module
from wormhole.filters import Filter, MaskKey, Projection
from wormhole.filters import projection as projection_module
from wormhole.filters.projection import HASH_TYPE
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, encode_row, values_of
from wormhole.wire.v1 import update_pb2

rewrite = hot_module("wormhole.wire.rewrite")

SECRET = b"0123456789abcdef0123456789abcdef"
PEOPLE = Schema(
    "shop.people",
    (Column("id", "int"),),
    tuple(Column(name, "text") for name in ("name", "email", "phone", "notes")),
)
# As a server has it: the key is among the columns.
ORDERS = Schema(
    "shop.orders", (Column("id", "int"),), (Column("email", "bytes"), Column("id", "int"), Column("total", "decimal"))
)

_values: st.SearchStrategy[Value] = st.one_of(
    st.text(max_size=200),
    st.binary(max_size=200),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.just(UNAVAILABLE),
)


def _rows(schema: Schema) -> st.SearchStrategy[tuple[Schema, bytes]]:
    image = st.one_of(st.just(()), st.tuples(*(_values for _ in schema.columns)))
    key = st.tuples(st.integers(0, 1 << 40))
    return st.builds(
        lambda op, key, old_key, after, before, large: (
            schema,
            encode_row(op, key, old_key=old_key, after=after, before=before, too_large=large),
        ),
        st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE]),
        key,
        st.one_of(st.just(()), key),
        image,
        image,
        st.booleans(),
    )


_entries = st.sampled_from(["name", "EMAIL", "shop.people.phone", "shop.orders.*", "*.notes", "total", "e*", "*"])
_projections = st.builds(
    lambda columns, mask: Projection.parse(columns, mask, MaskKey(SECRET)),
    st.lists(st.one_of(_entries, _entries.filter(lambda one: one != "*").map("-{}".format)), max_size=3),
    st.dictionaries(_entries.filter(lambda one: "*" not in one), st.sampled_from(["hash", "null"]), max_size=3),
)


def _text(value: Value) -> bytes:
    match value:
        case bytes():
            return value
        case bool():
            return b"true" if value else b"false"
        case Decimal():
            return format(value, "f").encode()
        case _:
            return str(value).encode()


def _masked(value: Value, how: str) -> Value:
    if how == "null":
        return None
    if value is None or value is UNAVAILABLE:
        return value
    return hmac.new(SECRET, _text(value), "sha256").hexdigest()


_ENTRIES = {  # what each entry of the strategy means, by plain reading
    "name": [("people", "name")],
    "EMAIL": [("people", "email"), ("orders", "email")],
    "shop.people.phone": [("people", "phone")],
    "shop.orders.*": [("orders", "email"), ("orders", "total")],
    "*.notes": [("people", "notes")],
    "total": [("orders", "total")],
    "e*": [("people", "email"), ("orders", "email")],
    "*": [
        (t, c)
        for t, cs in (("people", ("name", "email", "phone", "notes")), ("orders", ("email", "total")))
        for c in cs
    ],
}


def _plainly(projection: Projection, schema: Schema) -> Iterator[tuple[int, str]]:
    """Ordinal of each column that is left, and how: "", "hash" or "null"."""
    table = schema.table.removeprefix("shop.")
    wanted = [one for entry in projection.columns if entry[0] != "-" for one in _ENTRIES[entry]]
    unwanted = [one for entry in projection.columns if entry[0] == "-" for one in _ENTRIES[entry[1:]]]
    selects = any(entry[0] != "-" for entry in projection.columns)
    for i, column in enumerate(schema.columns):
        one = (table, column.name)
        if column.name != "id" and ((selects and one not in wanted) or one in unwanted):
            continue
        hows = {how for entry, how in projection.mask.items() if one in _ENTRIES[entry]}
        yield i, "null" if "null" in hows else "hash" if hows else ""


def _left(values: tuple[Value, ...], left: list[tuple[int, str]]) -> tuple[Value, ...]:
    return tuple(_masked(values[i], how) if how else values[i] for i, how in left) if values else ()


@given(
    _projections,
    st.lists(st.one_of(_rows(PEOPLE), _rows(ORDERS)), min_size=1, max_size=8),
    st.one_of(st.none(), st.sets(st.integers(0, 7)).map(sorted)),
)
def test_projecting_bytes_is_projecting_values(
    rewrite: ModuleType, projection: Projection, rows: list[tuple[Schema, bytes]], some: list[int] | None
) -> None:
    run = run_of(rows)
    kept = None if some is None else [i for i in some if i < len(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection_module, "rewritten", rewrite.rewritten)
        projected = projection.project(run, kept)
    body = build_body(projected, 1, kept)
    if body is None:
        assert kept == []
        return
    parsed = parse_body(body.data)
    schemas = {schema.id: schema for schema in body.schemas}
    expected = rows if kept is None else [rows[i] for i in kept]
    for ordinal, ((schema, row), sent) in enumerate(zip(expected, parsed.updates, strict=True)):
        left = list(_plainly(projection, schema))
        was, now = decode_row(row), decode_row(sent)
        assert values_of(now.after) == _left(values_of(was.after), left)
        assert values_of(now.before) == _left(values_of(was.before), left)
        assert (now.op, now.too_large) == (was.op, was.too_large)
        assert (list(now.key), list(now.old_key)) == (list(was.key), list(was.old_key))
        columns = schemas[parsed.schema_id_of(ordinal)].columns
        assert columns == tuple(
            Column(schema.columns[i].name, HASH_TYPE if how == "hash" else schema.columns[i].type) for i, how in left
        )


@given(_projections, _rows(PEOPLE))
def test_projecting_twice_is_projecting_once(projection: Projection, given_: tuple[Schema, bytes]) -> None:
    once = projection.project_row(*given_)
    assert projection.project_row(*once) == once


@given(_rows(PEOPLE), st.data())
def test_damaged_rows_are_refused_or_project_to_rows(
    rewrite: ModuleType, given_: tuple[Schema, bytes], data: st.DataObject
) -> None:
    """Whatever the bytes are: no other error, and nothing left of the masked columns in what can be parsed."""
    schema, row = given_
    damaged = bytearray(row)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    hows = {"name": "null", "email": "hash", "phone": "hash", "notes": "hash"}
    projection = Projection.parse((), hows, MaskKey(SECRET))
    run = run_of([(schema, bytes(damaged))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection_module, "rewritten", rewrite.rewritten)
        try:
            projected = projection.project(run, None)
        except DecodeError:
            return
    try:
        (sent,) = map(decode_row, update_pb2.BatchBody.FromString(projected.blob).updates)
    except ProtobufDecodeError:  # a damaged key
        return
    for image in (values_of(sent.after), values_of(sent.before)):
        assert not image or image[0] is None
        for value in image[1:]:
            assert value is None or value is UNAVAILABLE or re.fullmatch("[0-9a-f]{64}", str(value))


def test_equal_projections_have_one_hash() -> None:
    one = Filter.parse(None, projection=Projection.parse(["b", "A", "-c"], {"x": "hash", "y": "null"}))
    same = Filter.parse(None, projection=Projection.parse(["a", "-C", "b", "b"], {"Y": "null", "x": "hash"}))
    assert one.hash == same.hash
    others = [Projection(), Projection.parse(["a"], {}), Projection.parse(["b", "a", "-c"], {"x": "null", "y": "null"})]
    assert len({one.hash, *(Filter.parse(None, projection=other).hash for other in others)}) == 4
    assert Filter.parse("op == 'delete'").hash == Filter.parse("op == 'delete'", projection=Projection()).hash
