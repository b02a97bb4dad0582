"""Events in the form of Debezium. tests/integration/test_peers_envelopes.py compares them with Debezium's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from sinks.envelopes.debezium import DebeziumEnvelope
from sinks.envelopes.maxwell import MaxwellEnvelope
from sinks.records import NoForm, Record, RecordSubscriber, RecordWriter
from sinks.records.held import Budget
from subscriber_sdk import UNAVAILABLE, Op, Value
from subscriber_sdk.testing import Change, Kit, read, update
from tests.support.envelopes import Made, made, updates_of
from wormhole.model.schema import Column
from wormhole.wire.rows import decode_row

ROW: dict[str, Value] = {"id": 7, "status": "new"}


@dataclass
class Store(RecordWriter):
    """Keeps the ids of records."""

    ids: list[str] = field(default_factory=list)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        self.ids += [record.id for record in records]


def events(*changes: Change, database: str | None = None) -> list[Made]:
    return made(DebeziumEnvelope(database), updates_of(changes))


def rows(*changes: Change) -> list[tuple[str, Any, Any]]:
    """``op``, ``before`` and ``after``; of a tombstone nothing."""
    values = [event.value for event in events(*changes)]
    return [("", None, None) if value is None else (value["op"], value["before"], value["after"]) for value in values]


def test_an_event() -> None:
    (event,) = events(update("shop.orders", key=7, before=ROW, after={"id": 7, "status": "paid"}))
    times = {"ts_ms": 1_795_930_200_123, "ts_us": 1_795_930_200_123_456, "ts_ns": 1_795_930_200_123_456_000}
    assert event.value == {
        "before": ROW,
        "after": {"id": 7, "status": "paid"},
        "source": {
            "version": "1",
            "connector": "wormhole",
            "name": "db1",
            "snapshot": "false",
            "db": "shop",
            "table": "orders",
            "id": "0-1:42:0",
            "position": "1/1/42",
            **times,
        },
        "transaction": None,
        "op": "u",
        **times,
    }
    assert (event.id, event.key) == ("0-1:42:0", {"id": 7})


def test_a_delete_is_followed_by_a_tombstone() -> None:
    deleted, tombstone = events(update("shop.orders", key=7, before=ROW))
    assert (deleted.value["op"], deleted.value["before"], deleted.value["after"]) == ("d", ROW, None)
    assert (tombstone.id, tombstone.key, tombstone.value) == ("0-1:42:0/1", {"id": 7}, None)


def test_a_changed_key_is_a_delete_a_tombstone_and_an_insert() -> None:
    moved: dict[str, Value] = {"id": 8, "status": "new"}
    found = events(update("shop.orders", key=8, old_key=7, before=ROW, after=moved))
    assert [event.id for event in found] == ["0-1:42:0", "0-1:42:0/1", "0-1:42:0/2"]
    assert [event.key for event in found] == [{"id": 7}, {"id": 7}, {"id": 8}]
    assert [found[0].value["op"], found[0].value["before"], found[0].value["after"]] == ["d", ROW, None]
    assert found[1].value is None
    assert [found[2].value["op"], found[2].value["before"], found[2].value["after"]] == ["c", None, moved]


def test_operations() -> None:
    assert rows(
        update("shop.orders", key=7, after=ROW),
        update("shop.orders", key=7, after=ROW, op=Op.UPDATE),
        update("shop.orders", key=7, after=ROW, op=Op.UPSERT),
        update("shop.orders", key=(), after={"a": 1}),
        update("shop.orders", key=(), before={"a": 1}),
        update("shop.orders", key=(), op=Op.TRUNCATE),
    ) == [
        ("c", None, ROW),
        ("u", None, ROW),
        ("c", None, ROW),
        ("c", None, {"a": 1}),
        ("d", {"a": 1}, None),
        ("t", None, None),
    ]


def test_a_row_has_its_key_though_its_values_do_not() -> None:
    """As of a key-value store, and of PostgreSQL's deletes."""
    names: dict[str, Value] = {"a": 1, "b": b"\x00"}
    assert rows(update("kv", key=names, after={"v": "x"}), update("kv", key=names)) == [
        ("c", None, {"a": 1, "b": "AA==", "v": "x"}),
        ("d", {"a": 1, "b": "AA=="}, None),
        ("", None, None),
    ]


def test_an_existing_row_has_no_time() -> None:
    (event,) = made(DebeziumEnvelope(), updates_of([read("shop.orders", key=7, after=ROW)], 0))
    assert (event.value["op"], event.value["after"], event.value["ts_ms"]) == ("r", ROW, None)
    assert (event.value["source"]["snapshot"], event.value["source"]["ts_us"]) == ("incremental", None)


def test_names() -> None:
    def named(table: str, database: str | None) -> list[Any]:
        (event,) = events(update(table, key=1, after={"id": 1}), database=database)
        return [event.value["source"].get(name, "left out") for name in ("db", "schema", "table")]

    assert named("shop.orders", None) == ["shop", "left out", "orders"]
    assert named("public.orders", "shop") == ["shop", "public", "orders"]
    assert named("shop.a.b", None) == ["shop", "left out", "a.b"]
    assert named("users", None) == [None, "left out", "users"]


def test_values() -> None:
    after: dict[str, Value] = {
        "id": 2**64 - 1,
        "price": Decimal("12.5000"),
        "small": Decimal("1E-7"),
        "zeros": Decimal("0.5"),
        "raw": b"ab",
        "nan": float("nan"),
        "endless": float("-inf"),
        "none": None,
        "flag": True,
        "entries": {b"a": b"\xff"},
    }
    change = update("shop.orders", key=1, after=after)
    sent = decode_row(change.row)
    sent.after[list(after).index("zeros")].decimal = "1E+999999999"  # a peer may ask for more zeros than fit memory
    ((_, _, row),) = rows(replace(change, row=sent.SerializeToString()))
    assert row == {
        "id": 2**64 - 1,
        "price": "12.5000",
        "small": "0.0000001",
        "zeros": "1E+999999999",
        "raw": "YWI=",
        "nan": "NaN",
        "endless": "-Infinity",
        "none": None,
        "flag": True,
        "entries": {"entries": [["a", {"b64": "/w=="}]]},
    }


def test_values_that_the_log_does_not_hold() -> None:
    before: dict[str, Value] = {"id": 1, "doc": "x", "raw": b"y", "n": 1}
    after: dict[str, Value] = {"id": 1, "doc": UNAVAILABLE, "raw": UNAVAILABLE, "n": UNAVAILABLE}
    change = update("shop.orders", key=1, before=before, after=after)
    types = {"id": "int", "doc": "text", "raw": "bytes", "n": "int"}
    schema = replace(change.schema, columns=tuple(Column(name, type_) for name, type_ in types.items()))
    stands_for = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    assert rows(replace(change, schema=schema)) == [
        ("u", before | {"raw": "eQ=="}, {"id": 1, "doc": "__debezium_unavailable_value", "raw": stands_for})
    ]


def test_what_a_filter_selects() -> None:
    """A row that enters the selection was never sent, and one that leaves it has to go under the key that it had."""
    other: dict[str, Value] = {"id": 8, "status": "new"}
    assert rows(
        update("shop.orders", key=7, before=ROW, after=ROW, entered=True),
        update("shop.orders", key=8, old_key=7, before=ROW, after=other, entered=True),
        update("shop.orders", key=7, before=ROW, after=ROW, left=True),
        update("shop.orders", key=7, left=True),
    ) == [
        ("c", None, ROW),
        ("c", None, other),
        ("d", ROW, None),
        ("", None, None),
        ("d", {"id": 7}, None),
        ("", None, None),
    ]
    gone, tombstone = events(update("shop.orders", key=8, old_key=7, before=ROW, after=other, left=True))
    assert (gone.key, tombstone.key) == ({"id": 7}, {"id": 7})


def test_what_a_row_cannot_say_is_refused() -> None:
    too_large = update("shop.orders", key=7, after=ROW)
    row = decode_row(too_large.row)
    row.too_large = True
    del row.after[:]
    for change, reason in (
        (update("kv", key=b"a", after={"value": b"1"}, op=Op.MERGE), "merge"),
        (update("kv", key=b"a", key_end=b"b", op=Op.DELETE_RANGE), "delete_range"),
        (replace(too_large, row=row.SerializeToString()), "max_update_bytes"),
    ):
        for envelope in (DebeziumEnvelope(), MaxwellEnvelope()):
            with pytest.raises(NoForm, match=reason):
                made(envelope, updates_of([change]))


def test_a_refused_update_is_parked_and_no_other(wormhole_kit: Kit) -> None:
    store = Store()
    flow = wormhole_kit.attach(RecordSubscriber(DebeziumEnvelope(), store, Budget(1 << 20, 0)), on_failure="park")
    flow.commit(
        update("kv", key=b"a", after={"value": b"1"}),
        update("kv", key=b"b", after={"value": b"1"}, op=Op.MERGE),
        update("kv", key=b"c", after={"value": b"1"}),
    )
    assert flow.parked == ["test:1:1"]
    assert store.ids == ["test:1:0", "test:1:2"]
