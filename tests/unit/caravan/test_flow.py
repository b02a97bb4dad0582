"""What a flow tells and how it stands; ``tests/property/test_flow.py`` has what it delivers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caravan.buffer import BufferEntry, ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState, Piece
from datastores.memory.source import MemorySource
from scripts.prepare import ROOT
from tests.support.assigned import assigned_elsewhere
from tests.support.present import present
from wormhole.filters import Filter, Projection
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.wire.body import parse_body


class Journey:
    """A flow that boarded a buffer which is filled by hand."""

    def __init__(self) -> None:
        self.source = MemorySource(log="log", sharding=Sharding("log"), now_us=lambda: 9)
        self.start = self.source.latest()
        self.wakes = 0
        self.flow = CaravanFlow("app", "log", Filter.parse(None), self.start, 3, self._wake)
        self.buffer = ChangeBuffer(self.start.order)
        self._reader = self.source.open(self.start)

    def _wake(self) -> None:
        self.wakes += 1

    def commit(self, key: str = "k") -> Datamarker:
        return self.source.commit([(Op.UPSERT, "t", key.encode(), {"value": b"v"})])

    def segment(self) -> Segment:
        """The next one of the log; it is not in the buffer."""
        return present(self._reader.read(1 << 20, 0))

    def read(self) -> None:
        self.buffer.append(self.segment())

    def board(self) -> None:
        self.flow.board(self.buffer, present(self.buffer.join(self.flow.place)))

    def piece(self) -> Piece:
        return present(self.flow.peek())

    def take(self) -> None:
        self.piece()
        self.flow.take()


def test_a_new_flow_waits_at_its_marker() -> None:
    flow = Journey().flow
    assert (flow.state, flow.cause, flow.cursor, flow.peek()) == (CaravanFlowState.WAITING, "newly opened", None, None)
    assert flow.name == "app/log"
    assert repr(flow) == "<CaravanFlow app/log waiting epoch 3 at 1/1/0>"


@pytest.fixture
def journey() -> Journey:
    return Journey()


def test_peeking_does_not_move_and_taking_does(journey: Journey) -> None:
    journey.board()
    assert journey.wakes == 1
    assert journey.flow.peek() is None
    marker = journey.commit()
    journey.read()
    piece = journey.piece()
    assert journey.flow.peek() is piece
    assert (journey.flow.place, piece.marker) == (journey.start.order, marker)
    journey.flow.take()
    assert (journey.flow.place, journey.flow.marker, journey.flow.cursor) == (marker.order, marker, 1)


def test_log_is_kept_for_datamarkers_that_are_not_stored_yet(journey: Journey) -> None:
    """A flow that begins at `latest` knows no transaction before. The next datamarkers of its caravan have the last one
    as their anchor, which has to be read again where they are opened. As long as the caravan is there, the log is kept
    for its next datamarker (`Fleet.oldest_place`); when it has gone on, only the flow knows of those between."""
    journey.board()
    early = LogPosition(1, 0, 7)
    taken: list[Datamarker] = []
    for read_from in (early, None):
        journey.commit()
        segment = journey.segment()
        assert segment.marker is not None
        marker = segment.marker if read_from is None else replace(segment.marker, read_from=read_from)
        journey.buffer.append(replace(segment, marker=marker))
        assert journey.flow.keeps(journey.start) == (early if taken else journey.start.read_from)
        journey.take()
        taken.append(journey.flow.marker)
    first, second = taken
    assert first.read_from < journey.start.read_from < second.read_from
    kept = [journey.flow.keeps(stored) for stored in (journey.start, first, second)]
    assert kept == [early, early, second.read_from]


def test_a_flow_that_left_forgets_what_it_looked_at(journey: Journey) -> None:
    journey.board()
    journey.commit()
    journey.read()
    assert journey.flow.peek() is not None
    journey.flow.leave(CaravanFlowState.HELD, "why")
    assert (journey.flow.peek(), journey.flow.cursor, journey.flow.cause) == (None, None, "why")


def test_rows_that_changed_without_a_trace_at_its_place_are_met_by_a_flow_that_boards_later(journey: Journey) -> None:
    first = journey.commit()
    journey.read()
    journey.flow.board(journey.buffer, 0)
    journey.take()
    without_length = Segment(first.order, first.order, {}, first, 0, replaced={"t": first.order})
    other = ChangeBuffer(first.order)
    for _ in range(2):
        other.append(without_length)
    journey.flow.board(other, 2)
    assert set(journey.flow.replaced()) == {"t"}
    journey.commit()
    journey.read()
    journey.flow.board(journey.buffer, 1)
    journey.take()
    journey.flow.board(other, 2)  # the flow is behind what they are about
    assert journey.flow.replaced() == []


def test_a_caravan_that_is_behind_is_skipped_on_with(journey: Journey) -> None:
    journey.flow.place = journey.commit("a").order
    journey.commit("b")
    journey.board()
    journey._reader.read(1, 0)
    segment = present(journey.source.open(journey.start).read(1, 0))
    journey.buffer.append(segment)
    assert journey.flow.peek() is None
    assert journey.flow.cursor == 1


def test_a_gap_without_room_in_the_log_is_shown_once_and_then_passed(journey: Journey) -> None:
    """Writes past the log leave no hole in its bytes: the place before the gap is the place after it."""
    before = journey.commit()
    journey.source.skip(2)
    after = journey.commit()
    journey.board()
    journey.read()
    journey.take()
    journey.read()
    piece = journey.piece()
    assert piece.gap is not None
    assert (piece.body, piece.marker) == (None, None)
    assert (piece.gap.kind, piece.gap.first_missing, piece.gap.last_missing) == (LossKind.NOT_LOGGED, "2", "3")
    assert present(journey.buffer.entry(1)).segment.begin == before.order == journey.flow.place

    journey.flow.leave(CaravanFlowState.HELD, "asked")
    journey.flow.pass_gap(Datamarker(before.order, piece.gap.last_missing, before.order))
    journey.board()
    passed = journey.piece()
    assert (passed.gap, passed.marker) == (None, after)


def test_what_was_delivered_before_its_log_went_is_no_loss(journey: Journey) -> None:
    """The flow's own log file is gone, and all that it held was delivered: a caravan behind it meets a gap that is
    none for the flow."""
    before = journey.commit()
    journey.source.skip(2)
    after = journey.commit()
    journey.flow.marker = Datamarker(before.order, "3", before.order)
    journey.board()
    journey.read()
    journey.take()
    journey.flow.marker = Datamarker(before.order, "3", before.order)
    journey.read()
    piece = journey.piece()
    assert (piece.gap, piece.marker) == (None, after)


def test_a_gap_that_was_passed_before_a_restart_is_not_reported_again(journey: Journey) -> None:
    before = journey.commit()
    journey.source.skip(2)
    journey.commit()
    stored = Datamarker(before.order, "3", before.order)
    journey.flow = CaravanFlow("app", "log", Filter.parse(None), stored, 4, lambda: None)
    journey.read()
    journey.read()
    journey.board()
    assert journey.piece().gap is None


def test_a_transaction_in_pieces_goes_on_where_it_was_left_however_often_it_is_read_again(journey: Journey) -> None:
    """Whoever is moved again and again inside it would otherwise begin it anew each time and never get to its end."""
    end = journey.source.commit([(Op.UPSERT, "t", b"%d" % n, {"value": b"v"}) for n in range(6)])
    handed_on: list[int] = []
    for pieces in (4, 2, 1, 6):
        journey.buffer = ChangeBuffer(journey.start.order)
        reader = journey.source.open(journey.start)
        journey.board()
        for _ in range(pieces):
            segment = present(reader.read(1, 0))
            journey.buffer.append(segment)
            piece = journey.piece()
            if piece.body is not None:
                body = parse_body(piece.body.data)
                handed_on += [body.index_of(ordinal) for ordinal in range(len(body.updates))]
            journey.flow.take()
        assert journey.flow.place == (journey.start.order if pieces < 6 else end.order)
        journey.flow.leave(CaravanFlowState.WAITING, "moved")
    assert handed_on == [0, 1, 2, 3, 4, 5]
    assert (journey.flow.marker, journey.flow.resume_index) == (end, 0)


def test_a_broken_shard_is_met_before_its_segment_and_by_its_own_flow_only(journey: Journey) -> None:
    journey.board()
    journey.commit()
    journey.read()
    journey.commit()
    segment = journey.segment()
    segment.broken = {"other": DecodeError("not mine")}
    journey.buffer.append(segment)
    journey.take()
    assert journey.piece().broken is None
    journey.flow.leave(CaravanFlowState.WAITING, "moved")
    segment.broken = {"log": DecodeError("mine")}
    journey.board()
    for _ in range(2):  # and however often it comes again
        piece = journey.piece()
        assert (piece.body, piece.marker, str(piece.broken)) == (None, None, "mine [log-undecodable]")
    journey.flow.leave(CaravanFlowState.HELD, "mine")
    journey.flow.pass_gap(journey.source.latest())
    journey.board()
    assert journey.flow.peek() is None  # who is behind it already is not asked


def test_a_flow_that_wants_none_of_the_broken_tables_goes_on(journey: Journey) -> None:
    journey.flow.filter = Filter.parse(None, ["shop.*"])
    journey.commit()
    segment = journey.segment()
    segment.broken = {"log": DecodeError("mine", tables=("junk.a", "junk.b"))}
    journey.buffer.append(segment)
    journey.board()
    assert journey.piece().broken is None
    journey.flow.leave(CaravanFlowState.WAITING, "moved")
    segment.broken = {"log": DecodeError("mine", tables=("junk.a", "shop.b"))}
    journey.board()
    assert journey.piece().broken is segment.broken["log"]


def test_what_must_not_be_sent_as_it_is_stops_the_flow(journey: Journey) -> None:
    """A mask names a column of a table's key, which only the log shows."""
    journey.flow.filter = Filter.parse(None, projection=Projection.parse([], {"key": "null"}))
    journey.commit()
    journey.read()
    journey.board()
    piece = journey.piece()
    assert (piece.body, piece.marker) == (None, None)
    assert "mask: key names key, a column of the key of t" in str(piece.broken)
    journey.flow.leave(CaravanFlowState.WAITING, "moved")
    journey.flow.filter = Filter.parse(None, projection=Projection.parse(["other"], {}))
    journey.board()
    assert journey.piece().body is not None


def test_what_an_operator_skips_is_passed_and_nothing_else(journey: Journey) -> None:
    for number in range(2):
        journey.commit()
        segment = journey.segment()
        segment.broken = {"log": DecodeError("mine", update_id=f"db1:{number}:0")}
        journey.buffer.append(segment)
    journey.board()
    piece = journey.piece()
    assert piece.broken is not None
    journey.flow.pass_broken(piece.broken.update_id)
    assert journey.piece().broken is None
    journey.flow.take()
    piece = journey.piece()
    assert piece.broken is not None
    assert piece.broken.update_id == "db1:1:0"


def test_the_places_of_another_history_are_all_ahead(journey: Journey) -> None:
    """After a failover file numbers begin at any other value: by number alone what is new could look delivered."""
    journey.commit("old")
    segment = journey.segment()
    order = segment.end
    flow = CaravanFlow("app", "log", Filter.parse(None), journey.start, 3, lambda: None)
    flow.place = flow.marker.order = LogPosition(order.incarnation, order.file + 7, 0)
    flow.resume_index = 0
    ahead = LogPosition(order.incarnation + 1, order.file, order.offset)
    segment.begin, segment.end = journey.start.order, ahead
    assert segment.marker is not None
    segment.marker = replace(segment.marker, order=ahead)
    buffer = ChangeBuffer(journey.start.order)
    buffer.append(segment)
    flow.board(buffer, 0)
    piece = present(flow.peek())
    assert piece.body is not None
    assert piece.body.updates == 1


def test_nobody_else_assigns_its_attributes() -> None:
    folders = [ROOT / "caravan", *(ROOT / "publisher" / name for name in ("flows", "operate", "push"))]
    messages = {"after", "described", "hello", "message", "reply", "run"}
    assert assigned_elsewhere(folders, vars(Journey().flow), messages) == []


def test_a_flow_passes_a_thousand_segments_of_other_shards_at_once() -> None:
    source = MemorySource(log="log", sharding=Sharding("table"), now_us=lambda: 9)
    flow = CaravanFlow("app", "log.mine", Filter.parse(None), source.latest(), 3, lambda: None)
    buffer, reader = ChangeBuffer(flow.place), source.open(source.latest())
    flow.board(buffer, 0)
    for table in ["others"] * 1000 + ["mine"]:
        marker = source.commit([(Op.UPSERT, table, b"k", {"value": b"v"})])
        segment = present(reader.read(1, 0))
        buffer.append(segment)
    looked: list[int] = []
    entry = ChangeBuffer.entry

    def noted(self: ChangeBuffer, number: int) -> BufferEntry | None:
        looked.append(number)
        return entry(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangeBuffer, "entry", noted)
        piece = present(flow.peek())
        assert piece.body is not None
        assert (piece.marker, flow.cursor, flow.place.offset) == (marker, 1000, buffer.segment(999).end.offset)
        assert flow.marker == buffer.segment(999).marker
        flow.take()
        assert flow.peek() is None
    assert looked == [1000, 1001]
