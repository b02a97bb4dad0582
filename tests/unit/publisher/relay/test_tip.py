"""Who extends a relay, and by what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.tip import ABANDON, CLEAR, Begin, Order, Proof, Tip
from tests.support.present import present
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op


class Log:
    """Ten small transactions, then a large one. ``markers[n]``: behind the first n."""

    def __init__(self) -> None:
        self.memory = MemorySource("log")
        self.markers = [self.memory.latest()]
        for n in range(10):
            self.markers.append(self.memory.commit([(Op.UPSERT, "a", b"%d" % n, {"value": b"x"})]))
        rows = [(Op.UPSERT, "a", b"%d" % n, {"value": b"x" * 100}) for n in range(20)]
        self.markers.append(self.memory.commit(rows))
        self.memory.commit([])

    def read(self, first: int, last: int) -> Segment:
        """The transactions between two markers as one segment."""
        parts = []
        reader = self.memory.open(self.markers[first])
        size = 1
        while True:
            reader.close()
            reader = self.memory.open(self.markers[first])
            segment = present(reader.read(size, 0.0))
            parts.append(segment)
            if segment.end == self.markers[last].order and segment.marker is not None:
                return segment
            size += 1

    def pieces(self) -> list[Segment]:
        """The large transaction."""
        reader = self.memory.open(self.markers[10])
        found: list[Segment] = []
        while not found or found[-1].marker is None:
            segment = present(reader.read(500, 0.0))
            found.append(segment)
        return found


LOG = Log()
A, B = "a reader", "another one"


def tip_at(number: int | None, *, fills: bool = False, proof: Proof = Proof.ONE) -> Tip:
    tip = Tip(fills=fills, largest=1 << 20)
    tip.marker = None if number is None else LOG.markers[number]
    tip.proof = proof
    for reader in (A, B):
        tip.join(reader)
    return tip


def offer(tip: Tip, reader: str, first: int, last: int, *, room: bool = True) -> list[Order]:
    return tip.offer(reader, LOG.read(first, last), LOG.markers[first], room=room)


def is_serving(tip: Tip) -> bool:
    return tip.serves


def is_met(tip: Tip) -> bool:
    return tip.met


def needs_filling(tip: Tip) -> bool:
    return tip.needs_filling


def begins(order: Order) -> Datamarker:
    assert isinstance(order, Begin)
    return order.marker


def shown(orders: list[Order]) -> list[object]:
    """A stretch that begins by its marker's number, a segment by those that it lies between, the rest as it is."""
    numbers = {marker.order: number for number, marker in enumerate(LOG.markers)}
    return [
        (numbers[one.begin], numbers[one.end])
        if isinstance(one, Segment)
        else numbers[one.marker.order]
        if isinstance(one, Begin)
        else one
        for one in orders
    ]


@pytest.mark.parametrize(
    ("tip", "proof", "read", "orders", "records"),
    [
        (0, Proof.ONE, (0, 2), [(0, 2)], True),
        (2, Proof.ONE, (0, 5), [(2, 5)], True),
        (2, Proof.ONE, (0, 2), [], True),
        (5, Proof.ONE, (0, 2), [], False),
        (0, Proof.ONE, (3, 4), [3, (3, 4)], True),
        (3, Proof.PURGED, (3, 4), [3, (3, 4)], True),
        (3, Proof.PURGED, (2, 4), [], False),
        (5, Proof.DIVERGED, (3, 4), [CLEAR, 3, (3, 4)], True),
        (4, Proof.UNKNOWN, (2, 6), [(4, 6)], True),
        (4, Proof.UNKNOWN, (4, 6), [(4, 6)], True),
    ],
    ids=["at the tip", "across it", "comes to it", "behind it", "behind a hole", "the log does not reach the tip",
         "nor a reader before it", "the relay of another log", "across an unproven tip", "at an unproven tip"],
)  # fmt: skip
def test_a_reader_records_what_lies_behind_the_tip(
    tip: int, proof: Proof, read: tuple[int, int], orders: list[object], records: bool
) -> None:
    made = tip_at(tip, proof=proof)
    assert shown(offer(made, A, *read)) == orders
    assert made.recorder == (A if records else None)
    assert made.marker == LOG.markers[read[1] if orders else tip]
    assert made.proof is (Proof.ONE if records else proof)
    assert made.holes == ((tip == 0 and read == (3, 4)) or (proof is Proof.PURGED and bool(orders)))
    assert not records or offer(made, B, 6, 7) == [], "no other records"


def test_what_lies_across_the_tip_and_cannot_be_cut_is_left() -> None:
    for what in ({"marker": None}, {"broken": {"a": DecodeError("no")}}):
        tip = tip_at(2)
        assert tip.offer(A, replace(LOG.read(0, 5), **what), LOG.markers[0], room=True) == []
        assert tip.recorder is None


def test_a_closed_reader_does_not_record() -> None:
    tip = tip_at(0)
    tip.leave(A)
    assert offer(tip, A, 0, 2) == []
    assert tip.marker == LOG.markers[0]


def test_pieces_count_when_the_last_one_is_there() -> None:
    tip, pieces = tip_at(10), LOG.pieces()
    assert tip.offer(A, pieces[0], LOG.markers[10], room=True) == [pieces[0]]
    assert tip.marker == LOG.markers[10]
    for piece in pieces[1:]:
        assert tip.offer(A, piece, None, room=True) == [piece]
    assert tip.marker == LOG.markers[11]


def test_nobody_goes_on_inside_a_transaction() -> None:
    tip, pieces = tip_at(10), LOG.pieces()
    tip.offer(A, pieces[0], LOG.markers[10], room=True)
    assert tip.leave(A) == [ABANDON]
    assert tip.offer(B, pieces[1], None, room=True) == []
    assert tip.offer(B, pieces[-1], None, room=True) == []
    assert tip.recorder is None


def test_a_full_queue_ends_the_recording_and_what_was_begun() -> None:
    tip, pieces = tip_at(10), LOG.pieces()
    tip.offer(A, pieces[0], LOG.markers[10], room=True)
    assert tip.offer(A, pieces[1], None, room=False) == [ABANDON]
    assert tip.offer(A, pieces[2], None, room=True) == []
    assert tip.marker == LOG.markers[10]


def test_pieces_that_cannot_be_recorded_leave_a_hole_up_to_their_end() -> None:
    pieces = LOG.pieces()
    tip = Tip(fills=True, largest=pieces[0].size + 1)
    tip.join(A)
    tip.marker, tip.proof = LOG.markers[10], Proof.ONE
    assert tip.offer(A, pieces[0], LOG.markers[10], room=True) == [pieces[0]]
    assert tip.offer(A, pieces[1], None, room=True) == [ABANDON]
    for piece in pieces[2:-1]:
        assert tip.offer(A, piece, None, room=True) == []
    (last,) = tip.offer(A, pieces[-1], None, room=True)
    assert begins(last) == LOG.markers[11]


def test_another_incarnation_begins_a_stretch_at_its_first_datamarker() -> None:
    tip = tip_at(0)
    segment = LOG.read(0, 2)
    moved = replace(segment, begin=replace(segment.begin, incarnation=2))
    (order,) = tip.offer(A, moved, LOG.markers[0], room=True)
    assert begins(order) == LOG.markers[2]


def test_a_reader_of_another_log_records_nothing_at_an_unproven_tip() -> None:
    for first in (2, 4):
        tip = tip_at(4, proof=Proof.UNKNOWN)
        anchor = present(LOG.markers[4].anchor)
        tip.marker = replace(LOG.markers[4], anchor=replace(anchor, id="mem:77"))
        assert offer(tip, A, first, 6) == []
        assert (tip.recorder, tip.proof) == (None, Proof.UNKNOWN)


def test_files_of_another_log_that_could_not_be_removed_are_ordered_to_go_again() -> None:
    tip = tip_at(4, proof=Proof.DIVERGED)
    assert not tip.serves
    clear, begin, _ = offer(tip, A, 1, 2)
    assert (clear, begins(begin)) == (CLEAR, LOG.markers[1])
    assert tip.proof is Proof.ONE
    assert not tip.serves, "the writer did not do it yet"
    assert tip.lost(LOG.markers[4]) == [ABANDON]
    assert not is_serving(tip)
    assert offer(tip, A, 1, 2)[0] is CLEAR


# --- who fills a hole -------------------------------------------------------------------------------------------------


def filling(number: int) -> Tip:
    """A hole from a place up to reader A, which is at 8; B fills it."""
    tip = tip_at(number, fills=True)
    assert offer(tip, A, 7, 8) == []
    assert needs_filling(tip)
    assert tip.claim(B, fills=True)
    tip.proved(B, Proof.ONE, B)
    assert not needs_filling(tip)
    return tip


def test_a_hole_is_filled_up_to_the_reader() -> None:
    tip = filling(2)
    assert len(offer(tip, B, 2, 5)) == 1
    assert not is_met(tip)
    assert len(offer(tip, B, 5, 8)) == 1
    assert is_met(tip)
    tip.meet()
    assert tip.recorder == A
    assert len(offer(tip, A, 8, 9)) == 1


def test_where_the_tip_has_come_to_every_reader_there_is_no_hole() -> None:
    tip = tip_at(2, fills=True)
    assert len(offer(tip, A, 2, 4)) == 1
    assert offer(tip, B, 5, 6) == []
    assert len(offer(tip, A, 4, 6)) == 1
    tip.leave(A)
    assert not needs_filling(tip), "B is at the tip, and records what it reads next"
    assert tip.lost(LOG.markers[4]) == [ABANDON]
    assert needs_filling(tip)


def test_who_fills_is_met_inside_a_segment() -> None:
    tip = filling(2)
    offer(tip, B, 2, 9)
    (order,) = offer(tip, A, 8, 10)
    assert isinstance(order, Segment)
    assert (order.begin, tip.recorder) == (LOG.markers[9].order, A)


def test_who_fills_is_met_beyond_the_reader() -> None:
    tip = filling(2)
    offer(tip, B, 2, 10)
    assert is_met(tip)
    tip.meet()
    assert tip.recorder is None


def test_no_subscriber_takes_over_inside_a_transaction_of_who_fills() -> None:
    tip, pieces = filling(10 - 8), LOG.pieces()
    offer(tip, B, 2, 10)
    tip.offer(B, pieces[0], LOG.markers[10], room=True)
    assert tip.offer(A, LOG.read(9, 10), LOG.markers[9], room=True) == []
    assert tip.recorder == B
    assert not is_met(tip)


def test_who_fills_ends_when_no_reader_is_left() -> None:
    tip = filling(2)
    offer(tip, B, 2, 3)
    tip.leave(A)
    assert is_met(tip)


def behind_gap(first: int, last: int) -> Segment:
    return replace(LOG.read(first, last), gap=LogGap(LossKind.PURGED, "", str(first), "gone"))


def test_log_that_begins_behind_a_gap_without_a_datamarker_is_for_the_one_who_fills() -> None:
    tip = tip_at(0, fills=True)
    assert len(offer(tip, A, 0, 2)) == 1
    assert tip.offer(A, behind_gap(5, 6), LOG.markers[2], room=True) == []
    assert (tip.recorder, tip.marker) == (None, LOG.markers[2])
    assert needs_filling(tip)
    assert tip.claim(B, fills=True)
    tip.proved(B, Proof.ONE, B)
    assert len(tip.offer(B, behind_gap(5, 6), LOG.markers[2], room=True)) == 1, "a gap in the middle of the log"


def test_a_gap_that_is_filled_by_nobody_or_ends_at_a_datamarker_is_recorded() -> None:
    cached, empty = tip_at(2), tip_at(2, fills=True)
    assert cached.offer(A, behind_gap(2, 3), LOG.markers[2], room=True) == [behind_gap(2, 3)]
    assert len(cached.offer(A, behind_gap(5, 6), LOG.markers[3], room=True)) == 1
    assert offer(empty, A, 2, 3) == [LOG.read(2, 3)]
    gap = replace(behind_gap(4, 5), begin=LOG.markers[5].order, runs={})
    assert empty.offer(A, gap, LOG.markers[3], room=True) == [gap]


def test_a_hole_that_cannot_be_filled_stays() -> None:
    tip = tip_at(2, fills=True)
    offer(tip, A, 5, 6)
    tip.unfillable = True
    assert not needs_filling(tip)
    first, _ = offer(tip, A, 6, 7)
    assert begins(first) == LOG.markers[6]
    assert not tip.unfillable
