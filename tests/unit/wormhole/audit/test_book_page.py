"""A page of a flow's books is stored and read again, and what is none is refused."""

from __future__ import annotations

import json

import pytest

from wormhole.audit.book_page import DELAY_LIMITS_S, Counted, Page, Problem, place_numbers
from wormhole.model.position import LogPosition
from wormhole.wire.tally import Tally

BEGIN, MIDDLE, END = (LogPosition(1, 2, offset) for offset in (0, 5, 9))


def problem(begin: LogPosition = BEGIN, end: LogPosition = END, redone: LogPosition = BEGIN) -> Problem:
    return Problem(begin, end, sent=7, done=5, first=1, redone=redone)


def test_a_page_comes_back_as_it_was() -> None:
    page = Page(
        Tally(7, 2**64 - 1),
        processed=9,
        set_aside=2,
        aside_hash=2**63,
        delays=list(range(len(DELAY_LIMITS_S) + 1)),
        problems=[problem(), problem(redone=MIDDLE)],
        lives={2**63: Counted(9, 2, 2**63, 1)},
        partly=3,
        ahead=4,
        unheard={5: 6},
        stray=8,
    )
    assert Page.from_bytes(page.to_bytes()) == page


@pytest.mark.parametrize("what", [b"{", b"[]", b"{}", b"7", json.dumps([1] * 12).encode()])
def test_what_is_no_page_is_refused(what: bytes) -> None:
    with pytest.raises(ValueError, match="no page of a flow's books"):
        Page.from_bytes(what)


def test_a_page_of_other_delays_is_refused() -> None:
    told = json.loads(Page().to_bytes())
    told[5] = [0]
    with pytest.raises(ValueError, match="1 delays"):
        Page.from_bytes(json.dumps(told).encode())


def test_a_problem_is_repaired_with_its_last_update() -> None:
    assert not problem(redone=MIDDLE).is_repaired
    assert problem(redone=END).is_repaired


def test_two_problems_as_one_are_as_wide_as_both_and_not_repaired() -> None:
    both = problem(end=MIDDLE, redone=MIDDLE).joined(problem(begin=MIDDLE))
    assert (both.begin, both.end, both.sent, both.missing, both.first) == (BEGIN, END, 14, 4, 2)
    assert not both.is_repaired
    assert str(both).endswith("14 updates were sent, 10 were processed or set aside")


def test_a_place_is_its_numbers() -> None:
    assert LogPosition(*place_numbers(END)) == END
