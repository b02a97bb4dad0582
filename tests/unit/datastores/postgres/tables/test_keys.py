"""Keys and columns, as the catalogue has them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.decode.catalogue_keys import CatalogueColumn, CatalogueKey, LoggedKeys
from datastores.postgres.server.connection import Connection, Row
from datastores.postgres.tables import described as described_tables
from datastores.postgres.tables import keys as module
from datastores.postgres.tables.keys import SeenKeys, logged_keys_until, read_key
from wormhole.model.table_definition import ColumnDefinition, Content
from wormhole.ports.datastore import Login

# --- keys ---


class Server:
    """Answers in order; ``asked``: what it was asked."""

    def __init__(self, *answers: list[Row]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def query(self, statement: str, **_: Any) -> list[Row]:
        self.asked.append(statement)
        return self._answers.pop(0)


def _key(seen: SeenKeys, *rows: Row) -> tuple[CatalogueKey | None, str]:
    server = Server(list(rows))
    found = read_key(cast("Connection", server), 16400, 0x1_0000_0010, seen)
    return found, server.asked[0]


def test_a_key_is_read_with_what_was_settled_at_its_place() -> None:
    rows = (
        ("1", "id", "23", "t", "t", "f", "f", "t", "16405", "f"),
        ("2", "gone", "0", "f", "f", "t", "f", "f", "16405", "f"),
        ("3", "sum", "25", "f", "f", "f", "t", "f", "16405", "f"),
    )
    seen = SeenKeys()
    found, asked = _key(seen, *rows)
    assert found == CatalogueKey(
        (
            CatalogueColumn(1, "id", 23, in_key=True, remade=True),
            CatalogueColumn(2, "gone", 0, settled=False, dropped=True),
            CatalogueColumn(3, "sum", 25, settled=False, generated=True),
        ),
        16405,
        None,
    )
    assert "confirmed_flush_lsn <= '1/10'" in asked
    assert "c.oid = 16400" in asked
    assert "relname" not in asked, "a name may be another table's"
    seen.note(1, 0x1_0000_0010, {16400: 16405})
    assert (_key(seen, *rows)[0] or found).settled is True


def test_a_table_without_a_key_or_without_columns_and_one_that_is_gone() -> None:
    seen = SeenKeys()
    found, _ = _key(seen, ("1", "v", "25", None, "t", "f", "f", None, None, None))
    assert found == CatalogueKey((CatalogueColumn(1, "v", 25),), 0, None)
    assert _key(seen, (None,) * 10)[0] == CatalogueKey((), 0, None)
    assert _key(seen)[0] is None


def test_what_is_no_answer_is_a_value_error() -> None:
    for rows in ([("x",) * 10], [("1",)]):
        with pytest.raises(ValueError, match=r"invalid literal|not enough values"):
            read_key(cast("Connection", Server(cast("list[Row]", rows))), 16400, 100, SeenKeys())


def test_generated_columns_are_as_of_the_log_s_end_before_they_were_asked_for() -> None:
    server = Server(
        [("0/64",)], [("9", "shop", "t", "sum"), ("9", "shop", "t", "more"), ("8", "shop", "u", "x")], [("7",)]
    )
    expected = LoggedKeys({9: ("sum", "more"), 8: ("x",)}, frozenset({7}))
    assert logged_keys_until(cast("Connection", server)) == (100, expected)
    assert "pg_current_wal_insert_lsn" in server.asked[0]


def test_a_key_was_there_when_it_was_seen_before() -> None:
    seen = SeenKeys()
    assert seen.was_there(9, 5, 100) is None
    seen.note(1, 100, {9: 5})
    assert (seen.was_there(9, 5, 99), seen.was_there(9, 5, 100)) == (False, True)
    assert seen.was_there(9, 6, 100) is None, "it was made since"
    assert seen.was_there(9, 0, 100) is False, "it was dropped since"
    seen.note(1, 200, {9: 5, 8: 4})
    assert seen.was_there(9, 5, 100) is True
    seen.note(1, 300, {9: 6})
    assert (seen.was_there(9, 6, 299), seen.was_there(9, 6, 300)) == (False, True)
    assert (seen.was_there(8, 0, 299), seen.was_there(8, 0, 300)) == (False, True)


def test_another_history_has_other_places_and_keys_that_were_lost_take_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LOST", 2)
    seen = SeenKeys()
    for n in range(4):
        seen.note(1, 100 + n, {n: 5})
    assert [seen.was_there(n, 0, 500) for n in range(4)] == [None, None, None, False]
    seen.note(2, 50, {7: 5})
    assert (seen.was_there(3, 5, 500), seen.was_there(7, 5, 60)) == (None, True)


# --- described ---


# Schema, table, column, NOT NULL, type, kind of type, members, place in the key.
ROWS: list[Row] = [
    ("public", "orders", "id", "t", "20", "b", None, "1"),
    ("public", "orders", "plan", "f", "16400", "e", "free\x1fpaid", None),
    ("public", "orders", "paid", "t", "16", "b", None, None),
    ("public", "orders", "tenant", "t", "25", "b", None, "0"),
    ("shop", "log", "at", "f", "1184", "b", None, None),
]


class Rows:
    def query(self, _sql: str, **_options: Any) -> list[Row]:
        return ROWS

    def close(self) -> None:
        pass


def test_tables_are_described_by_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described_tables, "connect", lambda _: Rows())
    orders, log = DATASTORE.describe("postgres://u@h/shop", Login(), lambda name: True)
    assert (orders.name, orders.key) == ("public.orders", ("id", "tenant"))
    assert orders.columns == (
        ColumnDefinition("id", Content.INTEGER, False),
        ColumnDefinition("plan", Content.ENUM, True, ("free", "paid")),
        ColumnDefinition("paid", Content.BOOLEAN, False),
        ColumnDefinition("tenant", Content.TEXT, False),
    )
    assert (log.name, log.key, log.columns) == ("shop.log", (), (ColumnDefinition("at", Content.MOMENT, True),))
    assert DATASTORE.describe("postgres://u@h/shop", Login(), lambda name: name == "shop.log") == [log]
