"""Existing rows: their table, the conditions that ask for them, and the updates of a COPY."""

from __future__ import annotations

from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from datastores.postgres.decode.kinds import BYTES, INT, TEXT
from datastores.postgres.decode.messages import Relation, RelationColumn
from datastores.postgres.decode.table import Table
from datastores.postgres.decode.tables import Tables
from datastores.postgres.existing_rows.definition import Wanted, definition_of
from datastores.postgres.existing_rows.keys import PLAIN, KeyColumn, above, among, literals_of, order_by, same, up_to
from tests.support.hot import hot_module
from tests.support.postgres_catalogue import answer, column, part
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_key, encode_row

# --- copied rows ---


copied_rows = hot_module("datastores.postgres.existing_rows.copied_rows")

_ENOUGH = 1 << 30


def table(*types: int, key: int = 1) -> Table:
    """Columns of these types, the first ``key`` of them the key."""
    columns = tuple(RelationColumn(f"c{at}", one, -1, at < key) for at, one in enumerate(types))
    return Tables("log", Sharding("log")).learn(Relation(1, "public", "t", "d", columns))


def test_every_escape_and_null(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23, 25, 17), 1 << 20)
    found: dict[bytes, bytes] = {}
    assert (
        rows.add([b"1\ta\\tb\\n\\\\N\\b\\f\\r\\v\t\\\\x00ff\n", b"2\t\\N\t\\N\n", b"3\t\t\\\\x\n"], found, _ENOUGH) == 3
    )
    expected = [(1, "a\tb\n\\N\b\f\r\v", b"\x00\xff"), (2, None, None), (3, "", b"")]
    assert found == {encode_key(values[:1]): encode_row(Op.READ, values[:1], after=values) for values in expected}
    assert rows.size == sum(map(len, found.values()))


@pytest.mark.parametrize("size", [0, 127, 128, 255, 256, 70_000])
def test_sizes_and_a_key_of_two_columns(copied_rows: ModuleType, size: int) -> None:
    rows = copied_rows.CopiedRows(table(25, 20, 16, key=2), 1 << 20)
    found: dict[bytes, bytes] = {}
    rows.add([b"x" * size + b"\t-5\tt\n"], found, _ENOUGH)
    values = ("x" * size, -5, True)
    assert found == {encode_key(values[:2]): encode_row(Op.READ, values[:2], after=values)}


def test_it_ends_when_it_is_full(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23), 1 << 20)
    found: dict[bytes, bytes] = {}
    lines = [b"%d\n" % n for n in range(10)]
    one = len(encode_row(Op.READ, (1,), after=(1,)))
    assert rows.add(lines, found, 3 * one) == 3
    assert rows.add(lines[3:], found, 3 * one) == 1, "one is added at least"
    assert len(found) == 4


def test_a_row_over_the_limit_comes_without_its_values(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23, 25, 25), 100, True)
    found: dict[bytes, bytes] = {}
    rows.add([b"1\ta\tb\tf\n", b"2\t\\N\t\\N\tt\n", b"3\t" + b"x" * 60 + b"\t" + b"y" * 60 + b"\tf\n"], found, _ENOUGH)
    updates = [decode_row(update) for update in found.values()]
    assert [(update.too_large, len(update.after)) for update in updates] == [(False, 3), (True, 0), (True, 0)]
    assert found[encode_key((2,))] == encode_row(Op.READ, (2,), too_large=True)


@pytest.mark.parametrize("line", [b"1\n", b"1\t2\t3\n", b"\t" * 70_000 + b"\n", b"one\tx\n", b"\\N\\N\tx\n"])
def test_what_is_no_row_of_the_table(copied_rows: ModuleType, line: bytes) -> None:
    with pytest.raises(DecodeError, match=r"public\.t"):
        copied_rows.CopiedRows(table(23, 25), 1 << 20).add([line], {}, _ENOUGH)


# --- definition: what the catalogue's answer makes of a table; the rest is tested with servers ---


WANTED = Wanted("log", Sharding("log"), "w", "pub", frozenset({"shop.skipped", "left.*"}))


def test_a_table() -> None:
    found = definition_of(answer(), WANTED)
    assert not found.refused
    assert (found.name, found.rows, found.source, found.portable) == ("shop.t", 7, 'ONLY "shop"."t"', True)
    assert (found.asked, set(found.long), found.filter) == (('r."n"', 'r."v"'), {'r."v"'}, "")
    assert found.schema.columns == (Column("n", "int"), Column("v", "text"))
    assert found.key == (KeyColumn("n", 0, INT, "integer", "", "integer ", (), PLAIN),)
    assert found.key_table.columns == ("n",)


def test_a_partitioned_table_with_a_filter_and_chosen_columns() -> None:
    found = definition_of(answer(kind="p", filter="(n > 5)", listed=[1, 4]), WANTED)
    assert (found.source, found.filter, found.asked) == ('"shop"."t"', "(n > 5)", ('r."n"', 'r."g"'))


@pytest.mark.parametrize(("generated", "columns"), [(None, "nv"), ("n", "nv"), ("s", "nvg")])
def test_generated_columns_that_the_log_has(generated: str | None, columns: str) -> None:
    more = [*answer()["columns"], column(5, "w", generated="v")]
    found = definition_of(answer(columns=more, generated=generated), WANTED)
    assert [one.name for one in found.schema.columns] == list(columns)


def test_an_index_in_another_order_and_an_extensions_type() -> None:
    word = column(
        2, "w", type=20_000, built_in=False, cast="ext.citext", declared="ext.citext", base_schema="ext", base="citext"
    )
    operators = [f"ext.{sign}" for sign in PLAIN]
    key = [part(2, collation="pg_catalog.default", operators=operators), part(1)]
    found = definition_of(answer(columns=[column(1, "n"), word], key=key), WANTED)
    assert [(one.name, one.place, one.kind) for one in found.key] == [("w", 1, TEXT), ("n", 0, INT)]
    assert found.key[0].operators == tuple(f"OPERATOR(ext.{sign})" for sign in PLAIN)
    assert not found.portable
    assert not found.long, "a key is never left out"
    swapped = definition_of(answer(columns=[column(1, "n"), word], key=key[::-1]), WANTED)
    other = definition_of(answer(columns=[column(1, "n"), word], key=key, number=16_500), WANTED)
    assert len({found.fingerprint, swapped.fingerprint, other.fingerprint}) == 3


@pytest.mark.parametrize(
    ("more", "why", "hint"),
    [
        ({"kind": "v"}, "is a view", "name the tables"),
        ({"kind": "i"}, "is no table", "name the tables"),
        ({"persistence": "u"}, "is unlogged", 'ALTER TABLE "shop"."t" SET LOGGED;'),
        ({"root": "shop.root"}, "is a partition", "name shop.root"),
        ({"kind": "p", "via_root": False}, "is partitioned", "publish_via_partition_root = true"),
        ({"published": False}, "is not in the publication pub", 'ALTER PUBLICATION "pub" ADD TABLE "shop"."t";'),
        ({"schema": "a.b"}, "has a dot", "rename it"),
        ({"table": "skipped"}, "is in skip_tables", "take it out"),
        ({"schema": "left"}, "is in skip_tables", "take it out"),
        ({"usage": False}, "may not read", 'GRANT USAGE ON SCHEMA "shop" TO "w";'),
        ({"select": False}, "may not read", 'GRANT SELECT ON "shop"."t" TO "w";'),
        ({"row_security": True}, "row-level security", 'ALTER ROLE "w" BYPASSRLS;'),
        ({"key": []}, "no primary key that is checked at once", "ADD PRIMARY KEY"),
        ({"key": [], "identity": "f"}, "no primary key that is checked at once", "REPLICA IDENTITY USING INDEX"),
        ({"key": [], "identity": "i"}, "REPLICA IDENTITY is gone", "REPLICA IDENTITY DEFAULT"),
        ({"listed": [3]}, "leaves out a column of its key", "add the key"),
    ],
)
def test_what_is_refused(more: dict[str, Any], why: str, hint: str) -> None:
    found = definition_of(answer(**more), WANTED)
    assert found.refused.text.startswith(found.name)
    assert why in found.refused.text
    assert hint in found.refused.hint
    assert found.schema.columns == ()


# --- keys: conditions over keys, as SQL ---


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
