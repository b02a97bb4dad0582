"""Conditions over keys, as SQL."""

from __future__ import annotations

from decimal import Decimal

import pytest

from datastores.postgres.decode.kinds import BYTES, INT, TEXT
from datastores.postgres.existing_rows.keys import KeyColumn, above, among, literals_of, order_by, same, up_to
from wormhole.model.values import UNAVAILABLE, Value
from wormhole.wire.rows import encode_key

N = KeyColumn("n", 1, INT, "integer")
WORD = KeyColumn('W"o', 0, TEXT, "text", 'pg_catalog."de-x-icu"')
RAW = KeyColumn("raw", 0, BYTES, "bytea")
SIGNS = tuple(f"OPERATOR(ext.{sign})" for sign in ("<", "<=", "=", ">=", ">"))
LOOSE = KeyColumn("c", 0, TEXT, "ext.citext", operators=SIGNS)


def test_values_come_in_the_order_of_the_index() -> None:
    assert literals_of([N, WORD], encode_key(("it's", 5))) == ["'5'::integer", "'it''s'::text"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "-1"),
        (1 << 63, str(1 << 63)),
        (True, "t"),
        (False, "f"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("NaN"), "NaN"),
        (Decimal("1.50"), "1.50"),
        ("\\x'", "\\x''"),
    ],
)
def test_a_value_is_as_the_server_writes_it(value: Value, text: str) -> None:
    assert literals_of([KeyColumn("k", 0, TEXT, "t")], encode_key((value,))) == [f"'{text}'::t"]


def test_bytes() -> None:
    assert literals_of([RAW], encode_key((b"\x00\xff",))) == ["'\\x00ff'::bytea"]
    text = KeyColumn("k", 0, TEXT, "text")
    assert literals_of([text], encode_key((b"a\xe4",))) == ["E'\\x61\\xe4'::text"], "of a database without an encoding"


@pytest.mark.parametrize(
    "key",
    [b"\xff", encode_key(()), encode_key((1, 2)), *(encode_key((no,)) for no in (None, "\0", UNAVAILABLE))],
)
def test_what_is_no_key_of_the_table(key: bytes) -> None:
    with pytest.raises(ValueError):
        literals_of([KeyColumn("k", 0, TEXT, "text")], key)


def test_built_in_types_are_compared_as_rows() -> None:
    word = 'r."W""o" COLLATE pg_catalog."de-x-icu"'
    assert order_by([WORD, N]) == f'{word}, r."n"'
    assert above([WORD, N], ["'a'", "5"]) == f"({word}, r.\"n\") > ('a', 5)"
    assert up_to([WORD, N], ["'a'", "5"]) == f"({word}, r.\"n\") <= ('a', 5)"
    assert among([N], [["5"], ["6"]]) == '((r."n" = 5) OR (r."n" = 6))'
    assert same([WORD], ["'a'"], [["'b'"], ["'c'"]]) == (
        "('a' COLLATE pg_catalog.\"de-x-icu\" = 'b') OR ('a' COLLATE pg_catalog.\"de-x-icu\" = 'c')"
    )


def test_operators_of_another_schema_are_written_out() -> None:
    assert order_by([LOOSE, N]) == 'r."c" USING OPERATOR(ext.<), r."n"'
    assert above([LOOSE, N], ["'a'", "5"]) == (
        'r."c" OPERATOR(ext.>=) \'a\' AND (r."c" OPERATOR(ext.>) \'a\' OR (r."c" OPERATOR(ext.=) \'a\') AND r."n" > 5)'
    )
    assert up_to([N, LOOSE], ["5", "'a'"]) == (
        'r."n" <= 5 AND (r."n" < 5 OR (r."n" = 5) AND r."c" OPERATOR(ext.<) \'a\' OR '
        '(r."n" = 5 AND r."c" OPERATOR(ext.=) \'a\'))'
    )
