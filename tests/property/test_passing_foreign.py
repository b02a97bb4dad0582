"""A flow that passes the segments of other shards at once does the same as one that looks at each.

The log is made of segments by hand, so that all kinds of them come: transactions in pieces, ones that were rolled back,
gaps, what cannot be decoded, renamed tables and rows of a backfill, each of any shard. Two flows travel side by side
through any caravans, and every caravan reads the same segments from another place on.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FlowBackfill
from caravan.buffer import ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState, Piece
from tests.support.present import present
from tests.support.seed import examples
from wormhole.filters import Filter
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange, Segment
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

_SCHEMA = Schema("t", (Column("id", "int"),), (Column("a", "int"),))


class _Stepping(CaravanFlow):
    """Looks at every segment."""

    def _pass_foreign(self, buffer: ChangeBuffer) -> None:
        pass


@dataclass(frozen=True)
class _Step:
    """What the log holds next: a transaction in pieces, each with so many updates of shards."""

    pieces: tuple[tuple[str, ...], ...] = ((),)
    rolled_back: bool = False
    gap: bool = False
    broken: str = ""
    replaced: bool = False
    rows: str = ""
    idle: bool = False


_shards = st.lists(st.sampled_from("abcd"), max_size=2).map(tuple)
_special = st.one_of(
    st.builds(_Step, st.tuples(_shards), gap=st.just(True)),
    st.builds(_Step, st.tuples(_shards), broken=st.sampled_from("ab")),
    st.builds(_Step, st.tuples(_shards), replaced=st.just(True)),
    st.builds(_Step, rows=st.sampled_from("ab")),
    st.just(_Step(idle=True)),
)
_plain = st.builds(_Step, st.lists(_shards, min_size=1, max_size=3).map(tuple), rolled_back=st.booleans())
_foreign = st.just(_Step((("b",),)))
_steps = st.lists(st.one_of(_foreign, _foreign, _plain, _special), min_size=1, max_size=25)


def _place(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def _marker(offset: int) -> Datamarker:
    return Datamarker(_place(offset), str(offset), _place(offset))


def _segments(steps: list[_Step]) -> list[Segment]:
    found: list[Segment] = []
    at = 0
    for number, step in enumerate(steps, 1):
        if step.rows:
            found.append(_rows(at, number, step.rows))
            continue
        if step.idle:  # such as a transaction that left nothing
            marker = Datamarker(_place(at), f"{at} and {number}", _place(at))
            found.append(Segment(_place(at), _place(at), {}, marker, 10))
            continue
        before = at
        if step.gap:
            at = before = at + 5
        builder = RunsBuilder()
        builder.begin("mem", number, 0, _place(before))
        for index, shards in enumerate(step.pieces):
            last = index == len(step.pieces) - 1 and not step.rolled_back
            for shard in shards:
                builder.add((shard,), _SCHEMA, encode_row(Op.INSERT, (number,), after=(index,)))
            if last:
                at += 10
                builder.end(_place(at))
            segment = Segment(_place(before), _place(at), builder.take(), _marker(at) if last else None, 10)
            if index == 0 and step.gap:
                segment.gap = LogGap(LossKind.PURGED, str(before - 4), str(before), "gone")
            if step.broken:
                segment.broken = {step.broken: DecodeError("broken", update_id=f"mem:{number}:0")}
            if step.replaced:
                segment.replaced = {"t": _place(before)}
            found.append(segment)
    # What was rolled back at the end shows only behind it.
    builder = RunsBuilder()
    return [*found, Segment(_place(at), _place(at + 10), builder.take(), _marker(at + 10), 10)]


def _rows(at: int, number: int, shard: str) -> Segment:
    builder = RunsBuilder()
    builder.begin("read:1", number, 0, _place(at))
    builder.add((shard,), _SCHEMA, encode_row(Op.READ, (number,), after=(0,)))
    builder.end(_place(at))
    chunk = ChunkRange("t", _SCHEMA, None, None, START, END, _place(0))
    return Segment(_place(at), _place(at), builder.take(), _marker(at), 0, chunk=chunk)


class _Traveller:
    """A flow and all that it handed on or stopped at."""

    def __init__(self, kind: type[CaravanFlow], text: str | None, *, backfill: bool) -> None:
        self._kind, self._filter, self._backfill = kind, Filter.parse(text), backfill
        self.heard: list[object] = []
        self.flow = self._new(_marker(0))

    def _new(self, marker: Datamarker) -> CaravanFlow:
        backfill = FlowBackfill.resume(BackfillRequest(1), b"", self._filter.hash) if self._backfill else None
        if backfill is not None:
            backfill.offer([("t", Boundaries(1, "", {}))])
        return self._kind("app", "a", self._filter, marker, 1, lambda: None, backfill)

    def deliver(self, most: int) -> bool:
        """Hand on so many pieces that are not empty. Whether it travels on, with the caravan that it was in."""
        while most and (piece := self.flow.peek()) is not None:
            if not piece.empty:
                most -= 1
                self.heard.append(_told(piece, self.flow))
                if not self._goes_on(piece):
                    return False
                if piece.broken is not None:
                    continue
            self.flow.take()
        return True

    def _goes_on(self, piece: Piece) -> bool:
        if piece.gap is not None:
            self.flow.pass_gap(_marker(int(piece.gap.last_missing)))
            return False
        if piece.undone:
            self.flow = self._new(self.flow.marker)
            return False
        if piece.broken is not None:
            self.flow.pass_broken(piece.broken.update_id)
        return True

    @property
    def stands(self) -> tuple[object, ...]:
        flow = self.flow
        return flow.place, flow.marker, flow.resume_index, flow.begun, flow.cursor, flow.state


def _told(piece: Piece, flow: CaravanFlow) -> object:
    body = None if piece.body is None else piece.body.data
    return body, piece.marker, piece.gap, piece.broken, piece.undone, piece.chunk, piece.finished, flow.place


_MOVES = ["read"] * 8 + ["all"] * 4 + ["deliver", "drop", "change", "back"]


def _any(caravans: list[tuple[ChangeBuffer, int]]) -> st.SearchStrategy[ChangeBuffer]:
    return st.sampled_from(caravans).map(lambda one: one[0])


@examples(200)
@given(_steps, st.sampled_from([None, 'op == "delete"']), st.booleans(), st.data())
def test_passing_at_once_is_the_same_as_looking_at_each(
    steps: list[_Step], text: str | None, backfill: bool, data: st.DataObject
) -> None:
    segments = _segments(steps)
    starts = [0, *(i + 1 for i, one in enumerate(segments) if one.marker is not None and one.chunk is None)]
    passing = _Traveller(CaravanFlow, text, backfill=backfill)
    stepping = _Traveller(_Stepping, text, backfill=backfill)
    both = (passing, stepping)
    caravans: list[tuple[ChangeBuffer, int]] = []  # with the number of the segment that each began with

    def open_at(first: int) -> ChangeBuffer:
        buffer = ChangeBuffer(segments[first - 1].end if first else _place(0))
        caravans.append((buffer, first))
        return buffer

    def read(number: int) -> bool:
        buffer, first = caravans[number]
        if first + buffer.end >= len(segments):
            return False
        buffer.append(segments[first + buffer.end])
        return True

    def board(buffer: ChangeBuffer) -> None:
        cursors = {one.flow.place: buffer.join(one.flow.place) for one in both}
        if None not in cursors.values():
            for one in both:
                cursor = present(cursors[one.flow.place])
                one.flow.board(buffer, cursor)

    def deliver(most: int) -> None:
        goes_on = [one.deliver(most) for one in both]
        assert passing.heard == stepping.heard
        assert goes_on[0] == goes_on[1]
        if not goes_on[0]:
            assert passing.flow.place == stepping.flow.place
            first = max(i for i in starts if (segments[i - 1].end if i else _place(0)) <= passing.flow.place)
            board(open_at(first))

    board(open_at(0))
    for move in data.draw(st.lists(st.sampled_from(_MOVES), min_size=15, max_size=40)):
        buffer = passing.flow._buffer
        number = next((i for i, (one, _) in enumerate(caravans) if one is buffer), 0)
        match move:
            case "read":
                read(number)
            case "deliver":
                deliver(data.draw(st.integers(1, 3)))
            case "drop":
                for one in both:
                    one.flow.pass_over()
                oldest = caravans[number][0]
                while oldest.first < min(one.flow.cursor or 0 for one in both):
                    oldest.drop_oldest()
                    oldest._forget()
            case "change" | "back":  # to any caravan, or to a new one that is perhaps far behind
                for one in both:
                    one.flow.pass_over()
                    one.flow.leave(CaravanFlowState.WAITING, "the test said so")
                board(open_at(data.draw(st.sampled_from(starts))) if move == "back" else data.draw(_any(caravans)))
            case _:
                deliver(1 << 20)
                for one in both:
                    one.flow.pass_over()
                assert passing.stands == stepping.stands
    while True:
        board(caravans[-1][0])
        while read(len(caravans) - 1):
            pass
        before = len(passing.heard), passing.flow.place
        deliver(1 << 20)
        if before == (len(passing.heard), passing.flow.place):
            break
    assert passing.stands == stepping.stands
    assert passing.flow.replaced() == stepping.flow.replaced()
    assert (passing.flow.backfill is None) == (stepping.flow.backfill is None)
