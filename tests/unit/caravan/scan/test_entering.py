"""A chunk enters at the end of its window, with every change of it in its rows."""

from __future__ import annotations

import pytest

from caravan.backfill.boundaries import END, START
from caravan.scan.entering import EnteringChunk
from caravan.scan.window import ScanWindow
from tests.support.present import present
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange, Segment
from wormhole.model.values import Op, Value
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import encode_key, encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.update import Batch

SCHEMA = Schema("t", (Column("id", "int"),), (Column("a", "int"),))
HIGH = 2


def marker(offset: int) -> Datamarker:
    place = LogPosition(1, 1, offset)
    return Datamarker(place, str(offset), place)


def change(number: int, key: int, value: int) -> Segment:
    builder = RunsBuilder()
    builder.begin("mem", number, 0, marker(number - 1).order)
    builder.add(("s",), SCHEMA, encode_row(Op.UPDATE, (key,), after=(value,)))
    builder.end(marker(number).order)
    return Segment(marker(number - 1).order, marker(number).order, builder.take(), marker(number), 1)


def entering(alone: tuple[bytes, ...] = ()) -> EnteringChunk:
    range_ = ChunkRange("t", SCHEMA, None, None, START, END, marker(0).order, alone=alone)
    rows = [("s", encode_key((key,)), encode_row(Op.READ, (key,), after=(0,))) for key in (1, 2)]
    return EnteringChunk(range_, rows, lambda at: at.order.offset >= HIGH, "read:4", 7)


def look(chunk: EnteringChunk, window: ScanWindow, at: int) -> Segment | None:
    chunk.catch_up(*chunk.unseen(window), marker(at))
    return chunk.segment(window, marker(at).order, marker(at))


def values(segment: Segment) -> dict[Value, tuple[Value, ...]]:
    run = segment.runs["s"]
    body = present(build_body(run, 1))
    updates = Batch(parse_body(body.data), "s", 1, False, lambda _: SCHEMA).updates()
    assert all(update.op is Op.READ and update.committed_at is None for update in updates)
    assert [update.id for update in updates] == [f"read:4:7:{i}" for i in range(len(updates))]
    assert all(update.position == segment.end for update in updates)
    return {update.key[0]: tuple((update.after or {}).values()) for update in updates}


def test_enters_where_the_log_reached_the_snapshot() -> None:
    chunk, window = entering(), ScanWindow("t", marker(0), 10_000)
    assert look(chunk, window, 0) is None
    window.note(change(1, 1, 10))
    assert look(chunk, window, 1) is None
    window.note(change(2, 1, 20))
    segment = present(look(chunk, window, 2))
    assert segment.begin == segment.end == marker(2).order
    assert segment.marker == marker(2)
    assert values(segment) == {1: (20,), 2: (0,)}


def test_what_came_during_the_last_look_is_looked_at_first() -> None:
    chunk, window = entering(), ScanWindow("t", marker(0), 10_000)
    window.note(change(1, 1, 10))
    window.note(change(2, 1, 20))
    unseen = chunk.unseen(window)
    window.note(change(3, 2, 30))
    chunk.catch_up(*unseen, marker(2))
    assert chunk.reached
    assert chunk.segment(window, marker(3).order, marker(3)) is None
    assert values(present(look(chunk, window, 3))) == {1: (20,), 2: (30,)}


@pytest.mark.parametrize("alone", [(), (encode_key((1,)), encode_key((2,)))], ids=["a range", "single keys"])
def test_of_single_keys_nothing_else_is_left_out(alone: tuple[bytes, ...]) -> None:
    chunk, window = entering(alone), ScanWindow("t", marker(0), 10_000)
    window.note(change(1, 9, 10))
    window.note(change(2, 8, 10))
    entered = present(present(look(chunk, window, 2)).chunk)
    assert (entered.left_out, entered.again) == (() if alone else (encode_key((9,)), encode_key((8,))), ())
