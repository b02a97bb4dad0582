"""What the SDK tells of what it processed."""

from __future__ import annotations

import pytest

from subscriber_sdk.stream.counts import MOST_WINDOWS, Counts, windows_in
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA, US
from wormhole.audit.delivery_counts import KEPT_LIVES
from wormhole.audit.window_counts import ProcessedCount
from wormhole.model.position import LogPosition
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.runs import RunsBuilder


def body(*transactions: tuple[int, int], cut: bool = False) -> ParsedBody:
    """A body of transactions, each (commit time, updates); ``cut``: the last one goes on in the next body."""
    builder = RunsBuilder()
    for number, (at, updates) in enumerate(transactions):
        builder.begin("s", number, at, LogPosition(1, 2, number))
        for _ in range(updates):
            builder.add(["x"], SCHEMA, ROW)
        if not cut or number < len(transactions) - 1:
            builder.end(LogPosition(1, 2, number + 1))
    built = build_body(builder.take()["x"], 1)
    assert built is not None
    return parse_body(built.data)


def test_updates_are_counted_by_window() -> None:
    assert windows_in(body((5, 2), (9, 1))) == {0: 3}
    several = body((US, 2), (5, 1), (US + 1, 3), cut=True)
    assert windows_in(several) == {1: 5, 0: 1}
    assert [windows_in(several, n) for n in range(5)] == [{}, {1: 1}, {1: 2}, {1: 2, 0: 1}, {1: 3, 0: 1}]


@pytest.fixture
def counts() -> Counts:
    return Counts()


def test_counts_go_up_and_only_what_changed_is_reported(counts: Counts) -> None:
    counts.processed({3: 5, 4: 1})
    first = counts.report()
    assert (first.life, first.windows) == (counts.life, {3: ProcessedCount(5), 4: ProcessedCount(1)})
    assert counts.report(first.at).windows == {}
    counts.processed({4: 2})
    counts.set_aside(4, 2**64 - 1)
    counts.set_aside(4, 3)
    assert counts.report(first.at).windows == {4: ProcessedCount(1, 2, 2)}
    assert counts.report().windows == {3: ProcessedCount(5), 4: ProcessedCount(1, 2, 2)}


def test_what_is_rolled_back_is_in_vain_and_what_is_acknowledged_is_not(counts: Counts) -> None:
    counts.begin(1)
    counts.processed({3: 5})
    counts.acknowledged()
    counts.processed({3: 2, 4: 1})
    counts.set_aside(4, 7)
    counts.rolled_back()
    counts.rolled_back()
    assert counts.report().windows == {3: ProcessedCount(7, 0, 0, 2), 4: ProcessedCount(0, 1, 7, 1)}
    counts.processed({3: 2})
    counts.acknowledged()
    counts.rolled_back()
    assert counts.report().windows[3] == ProcessedCount(9, 0, 0, 2)


def test_another_epoch_goes_on_in_the_same_life_and_what_the_one_before_left_is_in_vain(counts: Counts) -> None:
    life = counts.life
    for epoch in (1, 3):
        counts.assigned(epoch)
        counts.begin(epoch)
        counts.processed({3: 5})
    counts.assigned(4)
    counts.begin(4)
    assert (counts.life, counts.epochs, counts.report().windows) == (life, (1, 3, 4), {3: ProcessedCount(10, 0, 0, 10)})


def test_after_more_epochs_than_publishers_remember_another_life_begins(counts: Counts) -> None:
    counts.begin(1)
    counts.processed({3: 5})
    life = counts.life
    counts.begin(1 + KEPT_LIVES)
    assert (counts.life, bool(counts.report().windows)) == (life, True)
    counts.begin(2 + 2 * KEPT_LIVES)
    assert 0 != counts.life != life
    assert (counts.epochs, counts.report().windows) == ((2 + 2 * KEPT_LIVES,), {})


def test_windows_are_bounded_and_the_earliest_go_but_for_what_has_no_time(counts: Counts) -> None:
    counts.processed(dict.fromkeys(range(MOST_WINDOWS + 5), 1))
    assert len(counts.report().windows) == MOST_WINDOWS + 5  # told once before they are forgotten
    assert sorted(counts.report().windows) == [0, *range(6, MOST_WINDOWS + 5)]


def test_with_a_new_epoch_no_more_is_reported_than_is_remembered(counts: Counts) -> None:
    counts.processed(dict.fromkeys(range(MOST_WINDOWS + 5), 1))
    counts.forget()
    assert len(counts.report().windows) == MOST_WINDOWS
