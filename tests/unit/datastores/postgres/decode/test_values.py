"""A column's text to the wire's value, by its type, in both forms."""

from __future__ import annotations

import math
from decimal import Decimal
from types import ModuleType

import pytest

from datastores.postgres.decode.tables import Tables
from tests.support import postgres_messages as build
from tests.support.hot import hot_module
from tests.support.postgres_changes import Change, changes_of
from tests.support.postgres_messages import BOOL, BYTEA, FLOAT4, FLOAT8, INT4, INT8, NUMERIC, TEXT, Cell
from wormhole.model.errors import DecodeError
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Value

encoder = hot_module("datastores.postgres.decode.encoder")

XID8, UUID = 5069, 2950


def inserted(module: ModuleType, kind: int, cell: Cell, most: int = 1 << 20) -> Change:
    """The insert of a row with the key 1 and one value of that type. Raises what breaks the table."""
    tables = Tables("db", Sharding("log"))
    found = module.Encoder(tables, most, 0)
    relation = build.relation(7, "shop.t", [("id", INT4), ("v", kind)])
    for message in (build.begin(100), relation, build.insert(7, ["1", cell]), build.commit(100, 140)):
        found.add(message)
    for error in tables.take_broken().values():
        raise error
    [change] = changes_of(found.take(), tables.schemas)
    return change


def value(module: ModuleType, kind: int, cell: Cell) -> Value:
    after = inserted(module, kind, cell).after
    assert after is not None
    return after["v"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (BOOL, "t", True),
        (BOOL, "f", False),
        (INT4, "0", 0),
        (INT4, "-1", -1),
        (INT8, "9223372036854775807", (1 << 63) - 1),
        (INT8, "-9223372036854775808", -(1 << 63)),
        (XID8, "0", 0),
        (XID8, "9223372036854775808", 1 << 63),
        (XID8, "18446744073709551615", (1 << 64) - 1),
        (FLOAT4, "0.1", 0.1),
        (FLOAT8, "-1.5e-300", -1.5e-300),
        (FLOAT8, "Infinity", math.inf),
        (NUMERIC, "-0012.50", Decimal("-12.50")),
        (NUMERIC, ".5", Decimal("0.5")),
        (NUMERIC, "NaN", "NaN"),
        (NUMERIC, "Infinity", "Infinity"),
        (NUMERIC, "-Infinity", "-Infinity"),
        (BYTEA, "\\x", b""),
        (BYTEA, "\\x00fF7e", b"\x00\xff\x7e"),
        (TEXT, "", ""),
        (TEXT, "naïve 試 \U0001f600", "naïve 試 \U0001f600"),
        (UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (INT4, None, None),
    ],
)
def test_a_value_is_what_the_type_means(encoder: ModuleType, kind: int, text: str | None, expected: Value) -> None:
    found = value(encoder, kind, text)
    assert found == expected
    assert type(found) is type(expected)


def test_a_key_that_is_not_a_number_is_found_again(encoder: ModuleType) -> None:
    for kind in (FLOAT8, NUMERIC):
        found = value(encoder, kind, "NaN")
        assert type(found) is (float if kind == FLOAT8 else str)
        rows: dict[object, str] = {(found, 1): "a row"}
        assert rows[value(encoder, kind, "NaN"), 1] == "a row"


@pytest.mark.parametrize("size", [1, 255, 256, 257, 70_000])
def test_values_of_every_length(encoder: ModuleType, size: int) -> None:
    """Short ones are copied by a loop, long ones in one go, and lengths take one to three bytes."""
    assert value(encoder, TEXT, "a" * size) == "a" * size
    assert value(encoder, TEXT, "é" * size) == "é" * size
    assert value(encoder, BYTEA, "\\x" + "0a" * size) == b"\n" * size


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80",
        b"\xc1\x80",
        b"\xc3",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xe2\x82",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98 ",
        b"\xff",
        b"a" * 70_000 + b"\xff",
    ],
)
def test_text_that_is_not_utf_8_goes_as_its_bytes(encoder: ModuleType, raw: bytes) -> None:
    assert value(encoder, TEXT, raw) == raw


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOL, "true"),
        (BOOL, "x"),
        (INT4, ""),
        (INT4, "-"),
        (INT4, "1a"),
        (INT8, "9223372036854775808"),
        (INT8, "-9223372036854775809"),
        (INT8, "1" * 40),
        (XID8, "-1"),
        (XID8, "18446744073709551616"),
        (FLOAT8, "one"),
        (NUMERIC, "1.2.3"),
        (NUMERIC, "1-2"),
        (NUMERIC, "-"),
        (BYTEA, "00"),
        (BYTEA, "\\x0"),
        (BYTEA, "\\x0g"),
    ],
)
def test_what_is_no_value_of_its_type_breaks_the_table_and_is_shown(encoder: ModuleType, kind: int, text: str) -> None:
    with pytest.raises(DecodeError, match=r"shop\.t, column v: .* is no value of its type"):
        inserted(encoder, kind, text)


@pytest.mark.parametrize(("kind", "text"), [(TEXT, "x" * 5000), (BYTEA, "\\x" + "00" * 5000), (NUMERIC, "1" * 5000)])
def test_a_value_beyond_the_limit_leaves_the_key(encoder: ModuleType, kind: int, text: str) -> None:
    change = inserted(encoder, kind, text, most=1000)
    assert (change.key, change.too_large) == ((1,), True)
    assert change.after in (None, {"id": 1, "v": UNAVAILABLE})


def test_a_table_of_many_columns(encoder: ModuleType) -> None:
    names = [f"c{n}" for n in range(300)]
    tables = Tables("db", Sharding("log"))
    found = encoder.Encoder(tables, 1 << 20, 0)
    wide = build.relation(7, "shop.t", [(name, INT4) for name in names])
    for message in (build.begin(1), wide, build.insert(7, [str(n) for n in range(300)]), build.commit(1, 2)):
        found.add(message)
    [change] = changes_of(found.take(), tables.schemas)
    assert change.after == dict(zip(names, range(300), strict=True))
