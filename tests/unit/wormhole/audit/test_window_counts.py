"""A page of delivery counts is stored and read again, and what is none is refused."""

from __future__ import annotations

import json

import pytest

from wormhole.audit.window_counts import Mismatch, WindowCounts, place_numbers
from wormhole.model.position import LogPosition

BEGIN, MIDDLE, END = (LogPosition(1, 2, offset) for offset in (0, 5, 9))


def mismatch(begin: LogPosition = BEGIN, end: LogPosition = END, redelivered_to: LogPosition = BEGIN) -> Mismatch:
    return Mismatch(begin, end, sent=7, processed=5, first=1, redelivered_to=redelivered_to)


@pytest.mark.parametrize("what", [b"{", b"[]", b"{}", b"7", json.dumps([1] * 12).encode()])
def test_what_is_no_page_is_refused(what: bytes) -> None:
    with pytest.raises(ValueError, match="no page of delivery counts"):
        WindowCounts.from_bytes(what)


def test_a_page_of_other_delays_is_refused() -> None:
    stored = json.loads(WindowCounts().to_bytes())
    stored[5] = [0]
    with pytest.raises(ValueError, match="1 delays"):
        WindowCounts.from_bytes(json.dumps(stored).encode())


def test_a_mismatch_is_repaired_with_its_last_update() -> None:
    assert not mismatch(redelivered_to=MIDDLE).is_repaired
    assert mismatch(redelivered_to=END).is_repaired


def test_two_mismatches_as_one_are_as_wide_as_both_and_not_repaired() -> None:
    both = mismatch(end=MIDDLE, redelivered_to=MIDDLE).joined(mismatch(begin=MIDDLE))
    assert (both.begin, both.end, both.sent, both.missing, both.first) == (BEGIN, END, 14, 4, 2)
    assert not both.is_repaired
    assert str(both).endswith("14 updates were sent, 10 were processed or set aside")


def test_a_place_is_its_numbers() -> None:
    assert LogPosition(*place_numbers(END)) == END
