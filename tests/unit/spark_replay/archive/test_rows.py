"""Batches become rows: every column of what a subscriber would see, whatever the shape of the body."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from spark_replay.archive.columns import SCHEMA, place_bytes
from spark_replay.archive.rows import Rows
from tests.support.archives import CUSTOMERS, KEYS, Change, gone, put, row, segments, tx, updates_of
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.body import ParsedBody
from wormhole.wire.update import Update

SCHEMAS = {schema.id: schema for schema in (KEYS, CUSTOMERS)}


def updates(*transactions: tuple[Change, ...], pieces: int = 1) -> list[list[Update]]:
    """What a subscriber is told of them, batch by batch."""
    return [updates_of(piece) for piece in segments("a", [tx(*changes, pieces=pieces) for changes in transactions])]


def taken(batches: list[list[Update]]) -> list[dict[str, object]]:
    rows = Rows()
    for batch in batches:
        rows.add(batch)
    assert len(rows) == sum(map(len, batches))
    found = rows.take()
    assert found.schema == SCHEMA
    assert len(rows) == rows.size == 0
    listed: list[dict[str, object]] = found.to_pylist()
    return listed


def wanted(update: Update) -> Mapping[str, object]:
    source, _, number = update.transaction.id.rpartition(":")
    return {
        "place": place_bytes(update.position, update.in_unfinished, update.index),
        "tx_source": source,
        "tx_number": int(number),
        "tx_index": update.index,
        "ends_tx": update.ends_transaction,
        "committed_at": update.committed_at,
        "op": update.op.value,
        "table": update.table,
    }


CHANGES = st.one_of(
    st.builds(put, st.binary(min_size=1, max_size=4), st.binary(max_size=20)),
    st.builds(gone, st.binary(min_size=1, max_size=4)),
    st.builds(lambda id_: row(Op.UPDATE, (id_ + 1, UNAVAILABLE, None, 0), (id_, "x", None, 0)), st.integers(0, 99)),
)


@given(st.lists(st.lists(CHANGES, min_size=1, max_size=6).map(tuple), min_size=1, max_size=5), st.integers(1, 3))
@settings(max_examples=100)
def test_rows_say_what_updates_say(transactions: list[tuple[Change, ...]], pieces: int) -> None:
    batches = updates(*transactions, pieces=pieces)
    flat = [update for batch in batches for update in batch]
    found = taken(batches)
    assert [{name: one[name] for name in wanted(flat[0])} for one in found] == [wanted(update) for update in flat]
    changes = [change for transaction in transactions for change in transaction]
    assert [one["update"] for one in found] == [change.encoded() for change in changes]
    assert [one["old_key"] is not None for one in found] == [bool(change.old_key) for change in changes]
    assert [one["partial"] for one in found] == [UNAVAILABLE in change.after for change in changes]
    places = [one["place"] for one in found]
    assert places == sorted(set(places))  # type: ignore[type-var]


def test_a_selection_of_a_batch() -> None:
    (batch,) = updates((put(b"1", b""), put(b"2", b""), put(b"3", b"")))
    found = taken([[batch[0], batch[2]]])
    assert [one["tx_index"] for one in found] == [0, 2]


def test_numbers_of_64_bits_come_back() -> None:
    most = (1 << 64) - 1
    body = ParsedBody(
        (put(b"k", b"v").encoded(),), (KEYS.id,), (), (), 0, ("s",), (), (most,), 1, (1,), (1,), (0,), (1,)
    )
    rows = Rows()
    rows.add_body(body, SCHEMAS.__getitem__)
    (found,) = rows.take().to_pylist()
    assert found["tx_number"] & most == most
    assert found["schema_id"] & most == KEYS.id
    assert found["committed_at"] is None


def test_what_was_too_large_is_counted() -> None:
    rows = Rows()
    for batch in updates((Change(Op.UPSERT, (b"k",), too_large=True), put(b"l", b"v"))):
        rows.add(batch)
    assert (rows.too_large, rows.schemas) == (1, {KEYS.id: KEYS})
    assert [one["partial"] for one in rows.take().to_pylist()] == [True, False]


@pytest.mark.parametrize("number", [0, 9])
def test_an_operation_of_a_later_release(number: int) -> None:
    body = ParsedBody((b"\x08%c" % number,), (KEYS.id,), (), (), 0, ("s",), (), (1,), 1, (1,), (1,), (0,), (1,))
    rows = Rows()
    with pytest.raises(DecodeError, match=f"the operation {number}, which this release does not know"):
        rows.add_body(body, SCHEMAS.__getitem__)
    assert not len(rows)
