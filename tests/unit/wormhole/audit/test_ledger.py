"""What was sent between two datamarkers, for the books. How it is booked stands in the publisher's tests."""

from __future__ import annotations

from tests.support.markers import marker
from tests.unit.publisher.flows.test_books import WINDOW, body, told
from wormhole.audit.book_page import Counted
from wormhole.audit.ledger import Before, Ledger, Settled
from wormhole.wire.tally import total


def test_what_lies_before_an_acknowledged_datamarker_is_settled() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.opened(7, told(10), [1, 2])
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    ledger.sent(body(2, 1))
    ledger.offered(marker(3))
    ledger.heard(told(14))
    first = ledger.acknowledged(marker(2))
    assert first == Settled(
        begin=marker(0).order,
        sent=body(0, 2).tallies,
        counted=body(0, 2).tallies,
        life=7,
        told={WINDOW: Counted(14)},
        passed={WINDOW: 4},
        before=Before({WINDOW: Counted(10)}, (1, 2)),
    )
    second = ledger.acknowledged(marker(3))
    assert second is not None
    assert (second.begin, second.sent, second.told, second.before) == (marker(2).order, body(2, 1).tallies, {}, None)


def test_of_several_passes_the_last_one_counts() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.opened(7)
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(told(5, in_vain=5))
    ledger.heard(told(7, in_vain=5))
    assert ledger.cut_off(released=False).unheard == {WINDOW: 4}
    ledger.heard(told(10, in_vain=5))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    assert (settled.told, settled.passed) == ({WINDOW: Counted(10, in_vain=5)}, {WINDOW: 5})


def test_a_datamarker_that_was_not_offered_here_settles_nothing() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.sent(body(0, 1))
    assert ledger.acknowledged(marker(4)) is None
    assert ledger.place == marker(4).order


def test_what_is_counted_already_is_sent_and_not_counted() -> None:
    ledger = Ledger(marker(0).order, marker(2).order)
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    assert (total(settled.sent).updates, settled.counted) == (6, body(2, 1).tallies)


def test_who_is_cut_off_may_have_done_the_rest_of_what_was_sent() -> None:
    ledger = Ledger(marker(0).order, marker(1).order)
    ledger.opened(7)
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    ledger.sent(body(2, 1))
    ledger.heard(told(5))
    cut = ledger.cut_off(released=False)
    assert (cut.life, cut.before, cut.told) == (7, Before(), {WINDOW: Counted(5)})
    assert (cut.unheard, cut.sent) == ({WINDOW: 1}, {WINDOW: 4})
    assert ledger.cut_off(released=True).unheard == {}


def test_who_does_not_count_tells_nothing() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.opened(0)
    ledger.sent(body(0, 1))
    ledger.offered(marker(1))
    ledger.heard(told(2))
    settled = ledger.acknowledged(marker(1))
    assert settled is not None
    assert (settled.life, settled.told, settled.passed, settled.before) == (0, {}, {}, None)


def test_two_that_follow_each_other_are_one() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.opened(7, told(1), [3])
    found = []
    for number in (0, 1):
        ledger.sent(body(number, 1))
        ledger.offered(marker(number + 1))
        ledger.heard(told(3 + 2 * number))
        settled = ledger.acknowledged(marker(number + 1))
        assert settled is not None
        found.append(settled)
    both = found[0].then(found[1])
    assert (both.begin, both.before, both.life) == (marker(0).order, Before({WINDOW: Counted(1)}, (3,)), 7)
    assert both.sent == both.counted == body(0, 2).tallies
    assert (both.told, both.passed) == ({WINDOW: Counted(5)}, {WINDOW: 4})


def test_settled_over_the_wire() -> None:
    ledger = Ledger(marker(0).order, marker(2).order)
    ledger.opened(7, told(3), [4])
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(told(7, 2, in_vain=1))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    there = Settled.from_message(settled.to_message())
    assert {window: tally.updates for window, tally in there.sent.items()} == {WINDOW: 6}
    assert (there.begin, there.counted, there.life) == (settled.begin, settled.counted, 7)
    assert (there.told, there.passed, there.before) == (settled.told, settled.passed, settled.before)
    assert (settled.told, settled.passed) == ({WINDOW: Counted(7, 2, 0, 1)}, {WINDOW: 5})


def test_of_a_part_only_what_was_told_goes_over_the_wire() -> None:
    ledger = Ledger(marker(0).order, None, partly=True)
    ledger.opened(7)
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(told(4))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    there = Settled.from_message(settled.to_message())
    assert (there.partly, there.sent, there.counted, there.told) == (True, {}, {}, {WINDOW: Counted(4)})
