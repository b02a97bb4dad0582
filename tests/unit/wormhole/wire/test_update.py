"""What a handler reads from an update."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType

import pytest

from subscriber_sdk.testing import Change, body_of, update
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.ports.dead_letters import open_parcel, wrap
from wormhole.wire.body import parse_body
from wormhole.wire.update import Update
from wormhole.wire.v1 import update_pb2

hot_update = hot_module("wormhole.wire.update")
Read = Callable[..., list[Update]]


@pytest.fixture
def read(hot_update: ModuleType) -> Read:
    """Changes as one transaction of a batch, in either form."""

    def updates(*changes: Change, number: int = 9, first_index: int = 0, ends: bool = True) -> list[Update]:
        schemas = {change.schema.id: change.schema for change in changes}
        body = body_of(
            changes, source="db1", number=number, first_index=first_index, ends=ends, committed_at_us=1_000_001
        )
        found: list[Update] = hot_update.Batch(parse_body(body), "s", 4, True, schemas.__getitem__).updates()
        return found

    return updates


def test_everything_is_there(read: Read) -> None:
    first, last = read(update("t", key=1, before={"a": 1, "b": 2}, after={"a": 1, "b": 3}), update("t", key=2))
    assert (first.id, last.id) == ("db1:9:0", "db1:9:1")
    assert (first.index, last.index) == (0, 1)
    assert (first.op, first.table, first.shard, first.key) == (Op.UPDATE, "t", "s", (1,))
    assert (first.before, first.after) == ({"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert first.changed == frozenset({"b"})
    assert (last.before, last.after, last.changed) == (None, None, None)
    assert (first.ends_transaction, last.ends_transaction) == (False, True)
    assert first.position == LogPosition(1, 1, 9)
    assert first.committed_at == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
    assert first.transaction == last.transaction
    assert first.transaction.id == "db1:9"
    assert (first.epoch, first.replayed, first.too_large) == (4, True, False)
    assert (first.old_key, first.key_end) == (None, None)
    assert repr(first) == "<Update db1:9:0 update t (1,)>"


def test_a_detached_update_has_the_same_content(read: Read) -> None:
    for original in read(update("t", key=1, after={"a": b"x"}), update("u", key="k"), first_index=3, ends=False):
        copy = original.detach()
        for name in ("id", "op", "table", "shard", "key", "after", "position", "committed_at", "epoch", "replayed"):
            assert getattr(copy, name) == getattr(original, name), name
        assert copy.transaction == original.transaction
        assert (copy.in_unfinished, copy.ends_transaction) == (True, False)


def test_a_detached_update_knows_that_its_transaction_ended(read: Read) -> None:
    first, last = (u.detach() for u in read(update("t", key=1), update("t", key=2)))
    assert (first.ends_transaction, last.ends_transaction) == (False, True)
    assert (first.in_unfinished, last.in_unfinished) == (False, False)
    assert first.index == 0
    assert first.detach().position == first.position


def test_an_update_that_is_delivered_again_knows_whether_its_transaction_ended(read: Read) -> None:
    changes = update("t", key=1), update("t", key=2)
    for original in (*read(*changes), *read(*changes, ends=False)):
        again = open_parcel(wrap(original), "s", 4)
        assert (again.id, again.position) == (original.id, original.position)
        assert (again.in_unfinished, again.ends_transaction) == (original.in_unfinished, original.ends_transaction)


def test_keys_that_have_to_stay_in_order(read: Read) -> None:
    one, same, other, moved, everything = read(
        update("t", key=1, after={"a": 1}),
        update("t", key=1, after={"a": 1}),
        update("u", key=1, after={"a": 1}),
        update("t", key=2, old_key=1, after={"a": 1}),
        update("t", key=(), op=Op.TRUNCATE),
    )
    assert one.ordering_keys() == same.ordering_keys()
    assert one.ordering_keys() != other.ordering_keys()
    assert len(moved.ordering_keys() or ()) == 2
    assert set(one.ordering_keys() or ()) < set(moved.ordering_keys() or ())
    assert everything.ordering_keys() is None


def test_a_row_that_is_none_names_update_and_place(read: Read) -> None:
    schema = update("t", key=1).schema
    (broken,) = read(Change(schema, b"\xff"))
    with pytest.raises(DecodeError, match=r"update db1:9:0 is no valid row.*position 1/1/9"):
        _ = broken.key


def test_marks(read: Read) -> None:
    plain, entered, left = read(
        update("t", key=1, after={"a": 1}),
        update("t", key=2, before={"a": 1}, after={"a": 2}, entered=True),
        update("t", key=3, left=True),
    )
    assert [(u.entered, u.left) for u in (plain, entered, left)] == [(False, False), (True, False), (False, True)]
    assert (left.op, left.after, left.key) == (Op.UPSERT, None, (3,))
    assert [(u.detach().entered, u.detach().left) for u in (plain, entered, left)] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_without_marks_none_is_marked(read: Read) -> None:
    (only,) = read(update("t", key=1, after={"a": 1}))
    assert (only.entered, only.left) == (False, False)
    assert not only.detach().left


def test_rows_by_column(read: Read, hot_update: ModuleType) -> None:
    found = hot_update.by_column(
        read(
            update("t", key=1, after={"a": 3, "b": "x"}),
            update("t", key=2, before={"a": 0, "b": "w"}, after={"a": 5, "b": "y"}),
        )
    )
    assert found == ({Op.INSERT, Op.UPDATE}, [[1, 2]], [[3, 5], ["x", "y"]])


@pytest.mark.parametrize(
    "other",
    [
        update("t", key=2, after={"a": UNAVAILABLE}),
        update("t", key=2, old_key=1, before={"a": 1}, after={"a": 1}),
        update("t", key=2, before={"a": 1}),
        update("t", key=2, before={"a": 1}, after={"a": 2}, entered=True),
        update("t", key=b"2", key_end=b"3", op=Op.DELETE_RANGE),
        update("u", key=2, after={"a": 1}),
        Change(update("t", key=1, after={"a": 1}).schema, update("t", key=1, after={"a": 1, "b": 1}).row),
        Change(update("t", key=1, after={"a": 1}).schema, update("t", key=(1, 2), after={"a": 1}).row),
        Change(update("t", key=1, after={"a": 1}).schema, update_pb2.Update(too_large=True).SerializeToString()),
    ],
)
def test_rows_of_other_forms_are_none_by_column(read: Read, hot_update: ModuleType, other: Change) -> None:
    assert hot_update.by_column(read(update("t", key=1, after={"a": 1}), other)) is None


def test_no_rows_are_none_by_column(hot_update: ModuleType) -> None:
    assert hot_update.by_column([]) is None


def test_a_row_with_more_values_than_columns_is_refused(read: Read) -> None:
    good = update("t", key=1, after={"name": "ada"})
    (bad,) = read(Change(Schema("t", good.schema.key, ()), good.row))
    with pytest.raises(ProtocolError, match="1 values for the 0 columns of its schema"):
        _ = bad.after
