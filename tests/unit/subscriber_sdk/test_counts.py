"""What the SDK tells of what it processed."""

from __future__ import annotations

from subscriber_sdk.counts import MOST_WINDOWS, Counts, Told, windows_in
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA, US
from wormhole.position import LogPosition
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.runs import RunsBuilder


def body(*transactions: tuple[int, int], cut: bool = False) -> ParsedBody:
    """Of (commit time, updates) each; ``cut``: the last one goes on in the next body."""
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


def test_counts_go_up_and_only_what_changed_is_told() -> None:
    counts = Counts()
    counts.processed({3: 5, 4: 1})
    assert counts.tell() == Told(counts.life, {3: (5, 0, 0), 4: (1, 0, 0)})
    assert counts.tell().windows == {}
    counts.processed({4: 2})
    counts.set_aside(4, 2**64 - 1)
    counts.set_aside(4, 3)
    assert counts.tell().windows == {4: (1, 2, 2)}


def test_a_new_epoch_tells_everything_again_in_the_same_life() -> None:
    counts = Counts()
    counts.processed({3: 5})
    first = counts.tell()
    counts.again()
    assert counts.tell() == first


def test_another_life_begins_with_nothing() -> None:
    counts = Counts()
    counts.processed({3: 5})
    life = counts.life
    counts.renew()
    assert counts.tell().windows == {}
    assert 0 != counts.life != life


def test_windows_are_bounded_and_the_earliest_go() -> None:
    counts = Counts()
    counts.processed(dict.fromkeys(range(MOST_WINDOWS + 5), 1))
    assert len(counts.tell().windows) == MOST_WINDOWS + 5  # told once before they are forgotten
    counts.again()
    assert sorted(counts.tell().windows) == list(range(5, MOST_WINDOWS + 5))
