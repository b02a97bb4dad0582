"""What the catalogue's answer makes of a table; the rest is tested with servers."""

from __future__ import annotations

from typing import Any

import pytest

from datastores.postgres.decode.kinds import INT, TEXT
from datastores.postgres.existing_rows.definition import Wanted, definition_of
from datastores.postgres.existing_rows.keys import PLAIN, KeyColumn
from tests.support.postgres_catalogue import answer, column, part
from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding

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
