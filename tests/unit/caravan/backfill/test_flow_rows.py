"""Which existing rows a flow takes from its caravan's buffer, and what its datamarkers hold then."""

from __future__ import annotations

import pytest

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FinishedTable, FlowBackfill, Renewal
from caravan.buffer import ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState
from caravan.scan.window import ScanWindow
from tests.support.present import present
from wormhole.filters import Filter
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange, Run, Segment
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.body import parse_body
from wormhole.wire.rows import encode_key, encode_row
from wormhole.wire.runs import RunsBuilder

SCHEMA = Schema("t", (Column("id", "int"),), (Column("a", "int"),))
REQUEST = BackfillRequest(1)


def place(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def marker(offset: int) -> Datamarker:
    return Datamarker(place(offset), str(offset), place(offset))


def runs(at: int, op: Op, *ids: int, source: str = "mem", ends: bool = True) -> dict[str, Run]:
    builder = RunsBuilder()
    builder.begin(source, at, 0 if op is Op.READ else 1_000_000, place(at))
    for number in ids:
        builder.add(("s",), SCHEMA, encode_row(op, (number,), after=(number % 2,)))
    if ends:
        builder.end(place(at))
    return builder.take()


def transaction(begin: int, *updates: tuple[Schema, bytes]) -> Segment:
    """The one behind ``begin``."""
    builder = RunsBuilder()
    builder.begin("mem", begin + 1, 0, place(begin))
    for schema, update in updates:
        builder.add(("s",), schema, update)
    builder.end(place(begin + 1))
    return Segment(place(begin), place(begin + 1), builder.take(), marker(begin + 1), 10)


def log(begin: int, end: int, *ids: int) -> Segment:
    return Segment(place(begin), place(end), runs(end, Op.INSERT, *ids), marker(end), 10)


def rows(at: int, begin: int, end: int, not_before: int, *ids: int) -> Segment:
    chunk = ChunkRange("t", SCHEMA, None, None, begin, end, place(not_before))
    return Segment(place(at), place(at), runs(at, Op.READ, *ids, source="read:1"), marker(at), 0, chunk=chunk)


def flow(at: int = 0, request: BackfillRequest | None = REQUEST, stored: bytes = b"", text: str = "") -> CaravanFlow:
    wanted = Filter.parse(text or None)
    backfill = None if request is None else FlowBackfill.resume(request, stored, wanted.hash)
    if backfill is not None:
        backfill.offer([("t", Boundaries(1, "", {5: b"5"}))])
    return CaravanFlow("app", "s", wanted, marker(at), 1, lambda: None, backfill)


def delivered(of: CaravanFlow, buffer: ChangeBuffer, cursor: int = 0) -> list[object]:
    of.board(buffer, cursor)
    found: list[object] = []
    while (piece := of.peek()) is not None:
        if piece.body is not None:
            counted = sum(tally.updates for tally in piece.body.tallies.values())
            found.append((piece.chunk is not None, piece.body.updates, counted))
            assert (parse_body(piece.body.data).window is None) == (piece.chunk is not None)
        elif piece.chunk is not None:
            found.append((True, 0, 0))
        found += list(piece.finished)
        of.take()
    return found


def progress(of: CaravanFlow) -> FlowBackfill:
    return present(of.backfill)


def buffer_of(*segments: Segment) -> ChangeBuffer:
    buffer = ChangeBuffer(place(0))
    for segment in segments:
        buffer.append(segment)
    return buffer


def test_rows_come_at_their_place_and_are_in_no_delivery_count() -> None:
    buffer = buffer_of(log(0, 1, 1), rows(1, START, 5, 0, 7, 8), log(1, 2, 2), rows(2, 5, END, 0))
    mine = flow()
    assert delivered(mine, buffer) == [
        (False, 1, 1),
        (True, 2, 0),
        (False, 1, 1),
        (True, 0, 0),
        FinishedTable("t", 2),
    ]
    assert progress(mine).finished
    assert mine.place == place(2)


def test_a_flow_without_a_backfill_steps_over_rows() -> None:
    buffer = buffer_of(log(0, 1, 1), rows(1, START, END, 0, 7), log(1, 2, 2))
    mine = flow(request=None)
    assert delivered(mine, buffer) == [(False, 1, 1), (False, 1, 1)]
    assert mine.marker == marker(2)
    assert mine.cursor == buffer.end


@pytest.mark.parametrize(
    ("at", "cursor", "segments", "expected"),
    [
        (1, 1, [log(0, 1, 1), log(1, 2, 2), rows(2, START, END, 0, 7)], [(False, 1, 1)]),
        (1, 0, [rows(0, START, END, 0, 7), log(0, 1, 1)], []),
        (0, 0, [rows(5, START, END, 0, 7)], []),
    ],
    ids=["asked for before the flow began", "the flow is ahead of them", "the flow is behind them"],
)
def test_rows_that_are_not_taken(at: int, cursor: int, segments: list[Segment], expected: list[object]) -> None:
    mine = flow(at)
    assert delivered(mine, buffer_of(*segments), cursor) == expected
    assert not progress(mine).finished


def test_a_flow_inside_the_next_transaction_does_not_take_rows_before_it() -> None:
    piece = Segment(place(0), place(0), runs(0, Op.INSERT, 1, 2, ends=False), None, 10)
    mine = flow()
    assert delivered(mine, buffer_of(piece)) == [(False, 2, 2)]
    assert mine.inside
    assert delivered(mine, buffer_of(rows(0, START, END, 0, 7))) == []


def test_a_row_that_the_log_moved_in_part_is_read_again() -> None:
    moved = transaction(
        0,
        (SCHEMA, encode_row(Op.UPDATE, (1,), after=(UNAVAILABLE,), old_key=(9,))),
        (SCHEMA, encode_row(Op.UPDATE, (2,), after=(5,), old_key=(8,))),
        (SCHEMA, encode_row(Op.UPDATE, (3,), after=(UNAVAILABLE,))),
    )
    mine = flow()
    delivered(mine, buffer_of(rows(0, START, 5, 0, 7), moved))
    assert list(progress(mine).again("t")) == [encode_key((1,))]
    again = flow(1, stored=mine.marker.backfill)
    assert list(progress(again).again("t")) == [encode_key((1,))]


def test_after_a_gap_rows_from_before_it_are_not_taken() -> None:
    mine = flow()
    mine.pass_gap(marker(3))
    assert mine.marker.backfill
    assert delivered(mine, buffer_of(rows(3, START, END, 1, 7))) == []
    assert delivered(mine, buffer_of(rows(3, START, END, 3, 7))) == [(True, 1, 0), FinishedTable("t", 1)]


def test_every_marker_holds_the_progress_and_a_restart_goes_on_there() -> None:
    mine = flow()
    delivered(mine, buffer_of(log(0, 1, 1), rows(1, START, 5, 0, 7, 8)))
    assert mine.marker.order == place(1)
    again = flow(1, stored=mine.marker.backfill)
    assert delivered(again, buffer_of(rows(1, START, 5, 1, 7), rows(1, 5, END, 1, 9))) == [
        (True, 1, 0),
        FinishedTable("t", 3),
    ]
    assert again.marker.order == mine.marker.order
    assert again.marker != mine.marker


def test_a_narrowed_request_ends_without_a_finished_table() -> None:
    mine = flow(request=BackfillRequest(1, where=Filter.parse("id == 3")))
    assert not any(isinstance(one, FinishedTable) for one in delivered(mine, buffer_of(rows(0, START, END, 0, 3))))
    assert progress(mine).finished


def test_what_is_not_taken_is_not_counted() -> None:
    mine = flow()
    mine.board(buffer_of(rows(0, START, 5, 0, 7)), 0)
    assert mine.peek() is not None
    mine.leave(CaravanFlowState.WAITING, "the test said so")
    assert progress(mine).rows == 0
    assert progress(mine).needs(ChunkRange("t", SCHEMA, None, None, START, 5, place(0)))


def test_rows_are_sent_again_behind_a_truncate_that_may_be_of_a_partition() -> None:
    """The application removed all that it held of the table, and the log does not say which rows are left."""
    truncate = transaction(1, (Schema("t", (), ()), encode_row(Op.TRUNCATE, ())))
    for taken in (END, 5):
        mine = flow()
        lists = [("t", Boundaries(1, "", {5: b"5"})), ("u", Boundaries(2, ""))]
        progress(mine).offer(lists)
        delivered(mine, buffer_of(log(0, 1, 1), rows(1, START, taken, 0, 7), truncate))
        progress(mine).offer(lists)
        assert progress(mine).ranges("t") == [(START, END)]


def test_a_finished_table_stays_so_when_rows_of_another_one_were_removed() -> None:
    truncate = Schema("u", (), ()), encode_row(Op.TRUNCATE, ())
    insert = SCHEMA, encode_row(Op.INSERT, (3,), after=(1,))
    mine = flow()
    delivered(mine, buffer_of(log(0, 1, 1), rows(1, START, 5, 0, 7), transaction(1, truncate, insert)))
    assert progress(mine).ranges("t") == [(5, END)]


def renamed(begin: int, end: int, at: int) -> Segment:
    segment = log(begin, end)
    segment.replaced = {"t": place(at)}
    return segment


@pytest.mark.parametrize(
    ("at", "renewal"),
    [(0, Renewal("rows of t changed, and the log does not have them", place(3))), (4, None)],
    ids=["it had rows of it", "it passed that before"],
)
def test_a_renamed_table_asks_for_another_generation_in_the_datamarker(at: int, renewal: Renewal | None) -> None:
    mine = flow(at)
    delivered(mine, buffer_of(log(0, 1, 1), renamed(1, 5, 3)))
    assert (progress(mine).renewal, mine.place) == (renewal, place(5))
    stored = FlowBackfill.resume(REQUEST, mine.marker.backfill, mine.filter.hash)
    assert (stored.renewal is None) is (renewal is None)


def test_a_renaming_is_reported_once_when_no_rows_are_wanted() -> None:
    mine, other = flow(request=None), flow(request=None, text='table != "t"')
    for one in (mine, other):
        delivered(one, buffer_of(log(0, 1, 1), renamed(1, 2, 1)))
    assert (mine.replaced(), other.replaced()) == (["t"], [])
    assert mine.replaced() == []


def test_rows_of_a_table_that_another_one_replaced_are_of_no_use() -> None:
    window = ScanWindow("t", marker(0), 1 << 20)
    window.note(log(0, 1, 1))
    assert not window.spoiled
    window.note(renamed(1, 2, 1))
    assert "without a trace" in window.spoiled
