from __future__ import annotations

from typing import Any

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.server.connection import Row
from datastores.postgres.tables import described as described_tables
from wormhole.model.table_definition import ColumnDefinition, Content
from wormhole.ports.datastore import Login

# Schema, table, column, NOT NULL, type, kind of type, members, place in the key.
ROWS: list[Row] = [
    ("public", "orders", "id", "t", "20", "b", None, "1"),
    ("public", "orders", "plan", "f", "16400", "e", "free\x1fpaid", None),
    ("public", "orders", "paid", "t", "16", "b", None, None),
    ("public", "orders", "tenant", "t", "25", "b", None, "0"),
    ("shop", "log", "at", "f", "1184", "b", None, None),
]


class Server:
    def query(self, _sql: str, **_options: Any) -> list[Row]:
        return ROWS

    def close(self) -> None:
        pass


def test_tables_are_described_by_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described_tables, "connect", lambda _: Server())
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
