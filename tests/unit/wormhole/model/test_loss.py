"""Why log can be missing, and the names under which that is told."""

from __future__ import annotations

import pytest

from wormhole.model.loss import LogGap, LossKind
from wormhole.wire.v1 import push_pb2


def test_every_kind_has_a_name_on_the_wire() -> None:
    assert {kind.value.upper() for kind in LossKind} == set(push_pb2.DataLoss.Kind.keys()) - {"KIND_UNSPECIFIED"}


def test_equal_gaps_are_equal() -> None:
    """A flow remembers the gap that it passed by comparing it."""
    assert LogGap(LossKind.PURGED, "1", "2", "m") == LogGap(LossKind.PURGED, "1", "2", "m")
    assert LogGap(LossKind.PURGED, "1", "2", "m") != LogGap(LossKind.PURGED, "1", "3", "m")


@pytest.mark.parametrize(
    ("delivered", "first", "is_behind"),
    [
        ("", "5", False),
        ("3", "5", False),
        ("4", "5", False),
        ("5", "6", False),
        ("8", "9", False),
        ("9", "5", True),
        ("12", "5", True),
        ("0-1-7", "5", False),
    ],
)
def test_the_range_of_a_loss_begins_behind_what_was_delivered(delivered: str, first: str, is_behind: bool) -> None:
    gap = LogGap(LossKind.PURGED, "5", "9", "WAL 3 is gone")
    assert gap.reached(delivered) is is_behind
    told = gap.without(delivered)
    assert (told.first_missing, told.last_missing) == (first, "9")
    assert (told == gap) is (first == "5")
    assert first == "5" or f"of these 5 to {delivered} were delivered before" in told.message


def test_a_range_that_is_no_number_is_reported_as_it_is() -> None:
    gap = LogGap(LossKind.PURGED, "a:2", "a:2", "m", "a:1-2")
    assert gap.without("a:1") == gap
    assert gap.delivered == "a:1-2"
    assert gap.reached("a:1-2")
    assert not gap.reached("a:1")
    assert not LogGap(LossKind.PURGED, "a:2", "", "m").reached("")
