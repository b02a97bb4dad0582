"""Documents in the form of Maxwell. tests/integration/test_peers_envelopes.py compares them with Maxwell's own."""

from __future__ import annotations

from typing import Any

from sinks.envelopes.maxwell import MaxwellEnvelope
from subscriber_sdk import UNAVAILABLE, Op, Value
from subscriber_sdk.testing import Change, read, update
from tests.support.envelopes import COMMITTED_US, Made, made, updates_of
from wormhole.model.values import NAN

ROW: dict[str, Value] = {"id": 7, "status": "new"}


def documents(*changes: Change, committed_us: int = COMMITTED_US, ends: bool = True) -> list[Made]:
    return made(MaxwellEnvelope(), updates_of(changes, committed_us, ends=ends))


def rows(*changes: Change) -> list[tuple[str, Any, Any]]:
    """``type``, ``data`` and ``old``."""
    values = [document.value for document in documents(*changes)]
    return [(value["type"], value.get("data", "left out"), value.get("old", "left out")) for value in values]


def test_a_document() -> None:
    paid: dict[str, Value] = {"id": 7, "status": "paid"}
    first, last = documents(
        update("shop.orders", key=7, after=ROW), update("shop.orders", key=7, before=ROW, after=paid)
    )
    head = {"database": "shop", "table": "orders", "type": "insert", "ts": 1_795_930_200, "xid": 42}
    assert first.value == head | {"xoffset": 0, "data": ROW}
    assert last.value == head | {"type": "update", "commit": True, "data": paid, "old": {"status": "new"}}
    assert (last.id, last.key) == ("0-1:42:1", {"database": "shop", "table": "orders", "pk.id": 7})
    (piece,) = documents(update("shop.orders", key=7, after=ROW), ends=False)
    assert "commit" not in piece.value


def test_operations() -> None:
    moved: dict[str, Value] = {"id": 8, "status": "new"}
    assert rows(
        update("shop.orders", key=7, before=ROW),
        update("shop.orders", key=7, after=ROW, op=Op.UPSERT),
        update("shop.orders", key=8, old_key=7, before=ROW, after=moved),
        update("shop.orders", key=7, before=ROW, after=ROW),
        update("shop.orders", key=(), op=Op.TRUNCATE),
    ) == [
        ("delete", ROW, "left out"),
        ("insert", ROW, "left out"),
        ("update", moved, {"id": 7}),
        ("update", ROW, "left out"),
        ("table-truncate", "left out", "left out"),
    ]


def test_of_a_log_without_values_from_before() -> None:
    assert rows(
        update("public.orders", key=7, after=ROW, op=Op.UPDATE),
        update("public.orders", key=8, old_key=7, after={"id": 8}, op=Op.UPDATE),
        update("public.orders", key=8),
    ) == [("update", ROW, "left out"), ("update", {"id": 8}, {"id": 7}), ("delete", {"id": 8}, "left out")]


def test_an_existing_row_has_no_time_and_no_transaction() -> None:
    (row,) = documents(read("shop.orders", key=7, after=ROW), committed_us=0)
    assert row.value == {
        "database": "shop",
        "table": "orders",
        "type": "bootstrap-insert",
        "ts": None,
        "data": ROW,
    }


def test_names_and_keys() -> None:
    key: dict[str, Value] = {"a": 1, "b": b"x"}
    two, none = documents(update("shop.a.b", key=key, after=key), update("users", key=(), after={"a": 1}))
    assert two.key == {"database": "shop", "table": "a.b", "pk.a": 1, "pk.b": "eA=="}
    assert (none.value["database"], none.value["table"], none.key) == (None, "users", None)


def test_old_has_what_is_known_to_differ() -> None:
    before: dict[str, Value] = {"same": 1, "nan": NAN, "unknown": "x", "was_unknown": UNAVAILABLE, "null": None}
    after: dict[str, Value] = {"same": 1, "nan": NAN, "unknown": UNAVAILABLE, "was_unknown": "y", "null": 2}
    ((_, data, old),) = rows(update("shop.orders", key={"same": 1}, before=before, after=after))
    assert data == {"same": 1, "nan": "NaN", "was_unknown": "y", "null": 2}
    assert old == {"null": None}


def test_what_a_filter_selects() -> None:
    other: dict[str, Value] = {"id": 8, "status": "new"}
    assert rows(
        update("shop.orders", key=8, old_key=7, before=ROW, after=other, entered=True),
        update("shop.orders", key=7, before=ROW, after=ROW, left=True),
    ) == [("insert", other, "left out"), ("delete", ROW, "left out")]
    (gone,) = documents(update("shop.orders", key=8, old_key=7, before=ROW, after=other, left=True))
    assert gone.key["pk.id"] == 7
