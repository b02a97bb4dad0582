"""The builder says what a log would say."""

from __future__ import annotations

import pytest

from subscriber_sdk import UNAVAILABLE, Op, Update
from subscriber_sdk.testing import Change, body_of, update
from wormhole.model.values import Value
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch


def read(*changes: Change) -> list[Update]:
    schemas = {change.schema.id: change.schema for change in changes}
    return Batch(parse_body(body_of(changes, number=9)), "s", 1, False, schemas.__getitem__).updates()


@pytest.mark.parametrize(
    ("sides", "op"),
    [
        ({"before": {"a": 1}, "after": {"a": 2}}, Op.UPDATE),
        ({"after": {"a": 2}}, Op.INSERT),
        ({"before": {"a": 1}}, Op.DELETE),
        ({}, Op.DELETE),
        ({"after": {"a": 2}, "op": Op.UPSERT}, Op.UPSERT),
    ],
)
def test_the_operation_follows_from_what_is_given(sides: dict[str, object], op: Op) -> None:
    (change,) = read(update("t", key=1, **sides))  # type: ignore[arg-type]
    assert change.op is op


def test_values_come_back_by_name() -> None:
    named: dict[str, Value] = {"tenant": "x", "id": 3}
    (change,) = read(update("t", key=named, before={"a": 1, "b": None}, after={"a": 2, "c": b"z"}))
    assert change.key == ("x", 3)
    assert change.before is not None
    assert change.after is not None
    assert dict(change.after) == {"a": 2, "b": UNAVAILABLE, "c": b"z"}
    assert dict(change.before) == {"a": 1, "b": None, "c": UNAVAILABLE}
    assert (change.id, change.ends_transaction) == ("test:9:0", True)


def test_several_tables_share_a_transaction() -> None:
    one, two = read(update("a", key=1, after={"x": 1}), update("b", key=(1, 2), after={"y": "t"}))
    assert (one.table, two.table) == ("a", "b")
    assert one.transaction == two.transaction


def test_key_changes_and_ranges() -> None:
    moved, swept = read(
        update("t", key=2, old_key=1, before={"a": 1}, after={"a": 1}),
        update("t", key=b"a", key_end=b"m", op=Op.DELETE_RANGE),
    )
    assert (moved.key, moved.old_key) == ((2,), (1,))
    assert (swept.key, swept.key_end) == ((b"a",), (b"m",))
