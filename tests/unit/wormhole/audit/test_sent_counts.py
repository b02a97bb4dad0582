"""What was sent between two datamarkers. How it is counted is in the publisher's tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.letters import letter
from tests.support.markers import marker
from tests.support.present import present
from tests.unit.publisher.flows.test_delivery_counter import WINDOW, body, told
from wormhole.audit import sent_counts
from wormhole.audit.sent_counts import NOT_COUNTED, EarlierCounts, SentCounts, Settled
from wormhole.audit.window_counts import ProcessedCount
from wormhole.wire.body import ParsedBody
from wormhole.wire.tally import total
from wormhole.wire.v1 import update_pb2


def settled(counts: SentCounts, offset: int) -> Settled:
    """What the acknowledgement of the datamarker there settles."""
    return present(counts.acknowledged(marker(offset)))


@pytest.fixture
def counts() -> SentCounts:
    return SentCounts(marker(0).order, None)


def test_what_lies_before_an_acknowledged_datamarker_is_settled(counts: SentCounts) -> None:
    counts.opened(7, told(10), [1, 2])
    counts.sent(body(0, 2))
    counts.offered(marker(2))
    counts.sent(body(2, 1))
    counts.offered(marker(3))
    counts.reported(told(14))
    first = counts.acknowledged(marker(2))
    assert first == Settled(
        begin=marker(0).order,
        sent=body(0, 2).tallies,
        counted=body(0, 2).tallies,
        life=7,
        reported={WINDOW: ProcessedCount(14)},
        passed={WINDOW: 4},
        before=EarlierCounts({WINDOW: ProcessedCount(10)}, (1, 2)),
    )
    second = settled(counts, 3)
    assert (second.begin, second.sent, second.reported, second.before) == (
        marker(2).order,
        body(2, 1).tallies,
        {},
        None,
    )


def test_of_several_passes_the_last_one_counts(counts: SentCounts) -> None:
    counts.opened(7)
    counts.sent(body(0, 3))
    counts.offered(marker(3))
    counts.reported(told(5, rolled_back=5))
    counts.reported(told(7, rolled_back=5))
    counts.reported(told(10, rolled_back=5))
    found = settled(counts, 3)
    assert (found.reported, found.passed) == ({WINDOW: ProcessedCount(10, rolled_back=5)}, {WINDOW: 5})


def test_a_datamarker_that_was_not_offered_here_settles_nothing(counts: SentCounts) -> None:
    counts.sent(body(0, 1))
    assert counts.acknowledged(marker(4)) is None
    assert counts.place == marker(4).order


def test_what_is_counted_already_is_sent_and_not_counted() -> None:
    counts = SentCounts(marker(0).order, marker(2).order)
    counts.sent(body(0, 3))
    counts.offered(marker(3))
    found = settled(counts, 3)
    assert (total(found.sent).updates, found.counted) == (6, body(2, 1).tallies)


def test_of_a_body_that_is_counted_already_no_update_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(data: bytes) -> ParsedBody:
        raise AssertionError("a replay has millions of them")

    counts = SentCounts(marker(0).order, marker(2).order)
    monkeypatch.setattr(sent_counts, "parse_body", opened)
    counts.sent(body(0, 1))
    counts.sent(body(1, 1))
    counts.offered(marker(2))
    found = settled(counts, 2)
    assert (total(found.sent).updates, found.counted) == (4, {})


def test_a_transaction_that_begins_where_counting_ended_is_not_counted_yet() -> None:
    whole = body(1, 1)
    message = update_pb2.BatchBody.FromString(whole.data)
    del message.tx_end[:]
    counts = SentCounts(marker(0).order, marker(2).order)
    counts.sent(replace(whole, pieces=(message.SerializeToString(),), unfinished=True))
    assert total(counts.ended().sent).updates == 2


def test_of_an_epoch_that_ended_it_is_known_what_was_reported_and_sent() -> None:
    counts = SentCounts(marker(0).order, marker(1).order)
    counts.opened(7)
    counts.sent(body(0, 2))
    counts.offered(marker(2))
    counts.sent(body(2, 1))
    counts.reported(told(5))
    ended = counts.ended()
    assert (ended.life, ended.before, ended.reported) == (7, EarlierCounts(), {WINDOW: ProcessedCount(5)})
    assert ended.sent[WINDOW].updates == 4


def test_a_flow_that_no_subscriber_has_counts_nothing() -> None:
    NOT_COUNTED.opened(7, told(3), [1])
    NOT_COUNTED.sent(body(0, 1))
    NOT_COUNTED.letter(letter(3)[1].body)
    NOT_COUNTED.offered(marker(1))
    assert NOT_COUNTED.acknowledged(marker(1)) is None
    assert (NOT_COUNTED.life, NOT_COUNTED.ended().sent) == (0, {})


def test_a_subscriber_that_does_not_count_reports_nothing(counts: SentCounts) -> None:
    counts.opened(0)
    counts.sent(body(0, 1))
    counts.offered(marker(1))
    counts.reported(told(2))
    found = settled(counts, 1)
    assert (found.life, found.reported, found.passed, found.before) == (0, {}, {}, None)


def test_two_that_follow_each_other_are_one(counts: SentCounts) -> None:
    counts.opened(7, told(1), [3])
    found = []
    for number in (0, 1):
        counts.sent(body(number, 1))
        counts.offered(marker(number + 1))
        counts.reported(told(3 + 2 * number))
        found.append(settled(counts, number + 1))
    both = found[0].then(found[1])
    assert (both.begin, both.before, both.life) == (
        marker(0).order,
        EarlierCounts({WINDOW: ProcessedCount(1)}, (3,)),
        7,
    )
    assert both.sent == both.counted == body(0, 2).tallies
    assert (both.reported, both.passed) == ({WINDOW: ProcessedCount(5)}, {WINDOW: 4})


def test_settled_over_the_wire() -> None:
    counts = SentCounts(marker(0).order, marker(2).order)
    counts.opened(7, told(3), [4])
    counts.sent(body(0, 3))
    counts.offered(marker(3))
    counts.reported(told(7, 2, rolled_back=1))
    found = settled(counts, 3)
    there = Settled.from_message(found.to_message())
    assert {window: tally.updates for window, tally in there.sent.items()} == {WINDOW: 6}
    assert (there.begin, there.counted, there.life) == (found.begin, found.counted, 7)
    assert (there.reported, there.passed, there.before) == (found.reported, found.passed, found.before)
    assert (found.reported, found.passed) == ({WINDOW: ProcessedCount(7, 2, 0, 1)}, {WINDOW: 5})


def test_of_a_part_only_what_was_reported_goes_over_the_wire() -> None:
    counts = SentCounts(marker(0).order, None, partial=True)
    counts.opened(7)
    counts.sent(body(0, 3))
    counts.offered(marker(3))
    counts.reported(told(4))
    found = settled(counts, 3)
    there = Settled.from_message(found.to_message())
    assert (there.partial, there.sent, there.counted, there.reported) == (True, {}, {}, {WINDOW: ProcessedCount(4)})
