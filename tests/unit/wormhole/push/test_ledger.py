"""What was sent between two datamarkers, for the books. How it is booked stands in the publisher's tests."""

from __future__ import annotations

from tests.support.markers import marker
from tests.unit.publisher.test_books import WINDOW, body, told
from wormhole.push.ledger import Ledger, Settled
from wormhole.wire.tally import total


def test_what_lies_before_an_acknowledged_datamarker_is_settled() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.sent(1, body(0, 2))
    ledger.offered(marker(2))
    ledger.sent(2, body(2, 1))
    ledger.offered(marker(3))
    ledger.heard(7, told(4))
    first = ledger.acknowledged(marker(2))
    assert first is not None
    assert (first.begin, first.sent, first.life, first.told) == (
        marker(0).order,
        body(0, 2).tallies,
        7,
        {WINDOW: (4, 0, 0)},
    )
    second = ledger.acknowledged(marker(3))
    assert second is not None
    assert (second.begin, second.sent, second.told) == (marker(2).order, body(2, 1).tallies, {})


def test_a_datamarker_that_was_not_offered_here_settles_nothing() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.sent(1, body(0, 1))
    assert ledger.acknowledged(marker(4)) is None
    assert ledger.place == marker(4).order


def test_what_is_counted_already_is_sent_and_not_counted() -> None:
    ledger = Ledger(marker(0).order, marker(2).order)
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    assert (total(settled.sent).updates, settled.counted) == (6, body(2, 1).tallies)


def test_callbacks_that_returned_and_were_not_acknowledged_are_known() -> None:
    ledger = Ledger(marker(0).order, None)
    ledger.sent(1, body(0, 2))
    ledger.sent(2, body(2, 1))
    ledger.returned(1)
    assert ledger.unacknowledged() == {WINDOW: 4}


def test_settled_over_the_wire() -> None:
    ledger = Ledger(marker(0).order, marker(2).order)
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(7, told(4, 2))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    there = Settled.from_message(settled.to_message())
    assert (there.begin, there.counted, there.life, there.told) == (
        settled.begin,
        settled.counted,
        7,
        {WINDOW: (4, 2, 0)},
    )
    assert {window: tally.updates for window, tally in there.sent.items()} == {WINDOW: 6}


def test_of_a_part_only_what_was_told_goes_over_the_wire() -> None:
    ledger = Ledger(marker(0).order, None, partly=True)
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(7, told(4))
    settled = ledger.acknowledged(marker(3))
    assert settled is not None
    there = Settled.from_message(settled.to_message())
    assert (there.partly, there.sent, there.counted, there.told) == (True, {}, {}, {WINDOW: (4, 0, 0)})
