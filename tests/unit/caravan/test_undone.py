"""Which segment shows that a transaction was rolled back of which a flow has a part."""

from __future__ import annotations

from array import array

from caravan.buffer import Begun, undone
from wormhole.position import Datamarker, LogPosition
from wormhole.segment import Run, Segment

PLACE = LogPosition(1, 3, 100)


def segment(number: int, file: int, *, shard: str = "s") -> Segment:
    """A whole segment with one transaction."""
    run = Run(
        b"", array("I", [0]), (), ("0-1",), array("Q", [number]), array("Q", [file]), array("Q", [900]), array("q", [1]),
        array("I", [1]),
    )  # fmt: skip
    end = LogPosition(1, file, 900)
    return Segment(PLACE, end, {shard: run}, Datamarker(end, "", end), 1)


def test_the_end_of_the_transaction_is_no_rollback() -> None:
    assert not undone(segment(4, 3), "s", PLACE, Begun("0-1:4", 3))


def test_another_transaction_in_its_place_is_one() -> None:
    assert undone(segment(5, 3), "s", PLACE, Begun("0-1:4", 3))
    assert undone(segment(5, 3, shard="other"), "s", PLACE, Begun("0-1:4", 3))


def test_the_same_number_in_the_next_file_is_another_transaction() -> None:
    assert undone(segment(4, 4), "s", PLACE, Begun("0-1:4", 3))
