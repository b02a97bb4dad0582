"""The ends of ranges and tables of existing rows: what is refused, and what becomes of a frame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from subscriber_sdk import KeyRange
from subscriber_sdk.backfill import key_range
from subscriber_sdk.stream.events import Closed, RangeArrived, ScanEnded
from subscriber_sdk.stream.session import Session
from subscriber_sdk.testing import body_of, frames, marker_at, read
from tests.unit.subscriber_sdk.stream.test_session import Frame, new, refusal, said, tell
from wormhole.model.schema import Column, Schema
from wormhole.wire.bounds import MOST_FRAME_BYTES, MOST_KEYS
from wormhole.wire.v1 import push_pb2, update_pb2

SCHEMA = Schema("users", (Column("id", "int"), Column("part", "bytes")), ())
TEXT = Schema("names", (Column("name", "text"),), ())
NO_KEY = Schema("log", (), ())


def row(*values: int | bytes | str, table: str = "", whole: bool = False) -> update_pb2.RowKey:
    key = update_pb2.RowKey(table=table, whole=whole)
    for value in values:
        kind = {int: "int", bytes: "bytes", str: "text"}[type(value)]
        key.values.add(**{kind: value})
    return key


def end(schema: Schema = SCHEMA, **fields: Any) -> Frame:
    given = {"portable": True, "after": row(1, b"a"), "until": row(9, b"z"), **fields}
    given["except"] = given.pop("left_out", [])
    return frames.chunk_end(1, 5, push_pb2.ChunkEnd(schema=schema.id, **given))


def opened(generation: int = 2, max_frame: int = 4 << 20) -> Session:
    session = new()
    session._max_frame = max_frame
    tell(session, frames.hello("app", "one"))
    tell(session, frames.assign(1, 5, "app", "s", marker_at(0), generation=generation))
    session.accept(1, 1000, None)
    tell(session, *map(frames.schema, (SCHEMA, TEXT, NO_KEY)))
    said(session)
    return session


def test_ends_come_in_order_among_batches() -> None:
    body = body_of([read("users", key=1, after={"name": "ada"})])
    events = tell(
        opened(), frames.batch(1, 5, 1, body), end(rows=1), frames.scan_end(1, 5, "users", 2, 1), frames.revoke(1, 5)
    )
    assert [type(event).__name__ for event in events] == ["BatchArrived", "RangeArrived", "ScanEnded", "Revoked"]
    assert isinstance(events[1], RangeArrived)
    assert events[1].schema == SCHEMA
    assert push_pb2.ChunkEnd.FromString(events[1].frame).rows == 1
    assert events[2] == ScanEnded(1, "users", 1)


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (end(schema=Schema("other", SCHEMA.key, ())), "chunk_end.schema: 0x"),
        (end(schema=NO_KEY), "chunk_end.schema: log has no key"),
        (end(schema=TEXT, after=row("a"), until=row("b")), "chunk_end.portable: key column name is text"),
        (end(after=row(1)), "chunk_end.after: 1 values for the 2 columns"),
        (end(until=row(1, 2)), "chunk_end.until: int for column part, which is bytes"),
        (end(until=row(1, b"a")), "chunk_end.until: (1, b'a') is not above chunk_end.after"),
        (end(until=row(9, b"z", table="names")), "chunk_end.until: no key of users"),
        (end(until=row(whole=True)), "chunk_end.until: no key of users"),
        (end(left_out=[row(2, b"b"), row("x", b"b")]), "chunk_end.except: text for column id, which is int"),
        (
            end(left_out=[update_pb2.RowKey(values=[update_pb2.Value(null=True)] * 2)]),
            "chunk_end.except: null for column id",
        ),
        (end(left_out=[row(2, b"")] * (MOST_KEYS + 1)), "chunk_end.except: 4097 entries"),
        (end(portable=False, after=None, until=None, alone=[row(2)]), "chunk_end.alone: 1 values"),
        (end(portable=False, after=None, until=None, alone=[row(2, b"")] * 4097), "chunk_end.alone: 4097 entries"),
        (end(portable=False, alone=[row(2, b"")]), "chunk_end.alone: single keys and a range"),
        (end(until=row(9, bytes(MOST_FRAME_BYTES))), "chunk_end: 524"),
        (frames.scan_end(1, 5, "", 2), "scan_end.table: empty"),
        (frames.scan_end(1, 5, "t" * 2000, 2), "scan_end.table: 2000 characters"),
        (frames.scan_end(1, 5, "users", 3), "scan_end.generation: 3; the flow was assigned in 2"),
    ],
)
def test_a_field_that_does_not_fit_is_named(frame: Frame, named: str) -> None:
    session = opened()
    assert isinstance(tell(session, frame)[-1], Closed)
    goodbye = refusal(session)
    assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert goodbye.message.startswith(named)


@pytest.mark.parametrize("frame", [end(), frames.scan_end(1, 5, "users", 0)])
def test_an_end_without_a_generation_is_refused(frame: Frame) -> None:
    session = opened(generation=0)
    tell(session, frame)
    assert "assigned without a generation" in refusal(session).message


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("frame", [end(), frames.scan_end(1, 5, "users", 2)])
def test_an_end_comes_amid_no_transaction(frame: Frame, parts: bool) -> None:
    session = opened()
    if parts:
        pieces = frames.parts(1, 5, 1, b"body", 2)
        for piece in pieces:
            piece.part.unfinished = True
        tell(session, *pieces)
    else:
        tell(session, frames.batch(1, 5, 1, b"body", unfinished=True))
    assert tell(session, frames.batch(1, 5, 2, b"body")), "and the next batch ends it"
    assert not isinstance(tell(session, frame)[-1], Closed)
    tell(session, frames.batch(1, 5, 3, b"body", unfinished=True))
    tell(session, frame)
    assert "came amid a transaction, which goes on behind batch 3" in refusal(session).message


def test_ends_that_wait_are_counted_until_a_datamarker_behind_them_is_acknowledged() -> None:
    session = opened()
    before = session._accounts.state.held
    for _ in range(10):
        tell(session, end(), frames.scan_end(1, 5, "users", 2))
    tell(session, frames.datamarker(1, 5, marker_at(1)))
    waiting = session._accounts.state.held - before
    assert waiting > 20 * 128
    session.ack(1, marker_at(1))
    assert session._accounts.state.held == before


def test_of_datamarkers_at_one_place_only_the_acknowledged_one_is_given_back() -> None:
    """A backfill's progress changes the marker, not its place."""
    session = opened()
    before = session._accounts.state.held
    first, second = (replace(marker_at(1), backfill=bytes([number]) * 1000) for number in (1, 2))
    tell(session, frames.datamarker(1, 5, first))
    one = session._accounts.state.held - before
    tell(session, frames.datamarker(1, 5, second))
    session.ack(1, first)
    assert session._accounts.state.held - before == one
    session.ack(1, second)
    assert session._accounts.state.held == before


def ranged(frame: Frame, schema: Schema = SCHEMA, **fields: Any) -> KeyRange | None:
    given: dict[str, Any] = {"shard": "s", "epoch": 5, "generation": 2, "parked": [], **fields}
    return key_range(frame.chunk_end, schema, **given)


def test_a_range_is_compared_as_the_database_does() -> None:
    found = ranged(end(rows=3, left_out=[row(4, b"")]), parked=[(5, b"p")])
    assert found == KeyRange(
        "users", "s", 5, 2, ("id", "part"), (1, b"a"), (9, b"z"), frozenset(), frozenset({(4, b""), (5, b"p")}), 3
    )
    inside = [(1, b"b"), (2, b""), (4, b"x"), (9, b"z")]
    outside = [(1, b"a"), (0, b"z"), (9, b"za"), (10, b""), (4, b""), (5, b"p")]
    assert [key for key in (*inside, *outside) if key in found] == inside
    with pytest.raises(TypeError, match="7 is no key of users: a tuple of id, part is expected"):
        7 in found  # noqa: B015


def test_a_range_without_ends_is_the_whole_table() -> None:
    found = ranged(end(after=None, until=None))
    assert found is not None
    assert (-5, b"") in found


def test_single_keys_of_any_type() -> None:
    frame = end(TEXT, portable=False, after=None, until=None, alone=[row("ada"), row("bob")])
    found = ranged(frame, TEXT, parked=[("bob",)])
    assert found is not None
    assert found.keys == {("ada",), ("bob",)}
    assert [key for key in (("ada",), ("bob",), ("abc",)) if key in found] == [("ada",)]


@pytest.mark.parametrize("fields", [{"narrowed": True}, {"portable": False, "after": None, "until": None}])
def test_nothing_is_concluded_from_a_narrowed_backfill_or_an_order_of_the_database(fields: dict[str, Any]) -> None:
    assert ranged(end(**fields)) is None
