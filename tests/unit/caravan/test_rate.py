"""Caps of rates, and the speeds that are measured."""

from __future__ import annotations

import math
import random
import sys
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caravan.rate import RateCap
from caravan.speeds import Pace, shares, speeds

# --- The reading cap, with time as an argument


def worst_second(reads: list[tuple[float, int]]) -> int:
    """The most that was read within any second."""
    times = [at for at, _ in reads]
    return max(sum(size for _, size in reads[i : bisect_right(times, times[i] + 1.0)]) for i in range(len(reads)))


def test_no_rate_is_no_cap() -> None:
    cap = RateCap(0)
    assert cap.piece == sys.maxsize
    cap.take(1 << 40, 1.0)
    assert cap.delay(1 << 40, 1.0) == 0.0


def test_two_pieces_are_free_and_the_next_waits() -> None:
    cap = RateCap(1000)
    assert cap.piece == 10
    assert cap.delay(20, 5.0) == 0.0
    cap.take(20, 5.0)
    assert cap.delay(10, 5.0) == pytest.approx(10 / 950)
    assert cap.delay(10, 5.0 + 10 / 950) == 0.0


def test_what_was_not_read_is_given_back_and_what_was_read_more_is_paid_for() -> None:
    cap = RateCap(1000)
    cap.take(10, 0.0)
    cap.take(-10, 0.0)
    assert cap.delay(20, 0.0) == 0.0
    cap.take(10, 0.0)
    cap.take(960, 0.0)  # one update of 970 bytes
    assert cap.delay(10, 0.0) == pytest.approx(1.0, abs=0.02)


def test_an_idle_reader_saves_up_no_more_than_two_pieces() -> None:
    cap = RateCap(1000)
    cap.take(0, 0.0)
    assert cap.delay(20, 3600.0) == 0.0
    cap.take(20, 3600.0)
    assert cap.delay(1, 3600.0) > 0.0


def test_another_rate_holds_at_once_and_brings_nothing_saved() -> None:
    cap = RateCap(100_000)
    cap.change(1000, 0.0)
    cap.take(20, 0.0)
    assert cap.delay(10, 0.0) > 0.0
    cap.change(0, 0.0)
    assert cap.delay(1 << 30, 0.0) == 0.0
    cap.change(1000, 1.0)
    assert cap.delay(10, 1.0) > 0.0


def test_the_least_rate_still_reads() -> None:
    cap = RateCap(1)
    assert cap.piece == 1
    assert cap.delay(1, 0.0) == 0.0


@pytest.mark.parametrize("rate", [1000, 1 << 20, 40 << 20])
def test_a_backlog_is_read_at_nearly_the_rate_and_no_second_exceeds_it(rate: int) -> None:
    cap, now, reads = RateCap(rate), 0.0, []
    while now < 20.0:
        now += cap.delay(cap.piece, now)
        cap.take(cap.piece, now)
        reads.append((now, cap.piece))
    assert worst_second(reads) <= rate
    assert sum(size for _, size in reads) >= 0.94 * rate * 20


@given(st.integers(2, 6), st.integers(0, 1000))
def test_several_readers_of_one_cap_never_exceed_it_together(readers: int, seed: int) -> None:
    """Each takes before it reads, reads for a while, and reads less than it asked for now and then."""
    chance = random.Random(seed)
    cap, now, reads = RateCap(100_000), 0.0, []
    ends = [0.0] * readers
    piece = cap.piece // readers
    while now < 3.0:
        reader = min(range(readers), key=ends.__getitem__)
        now = max(now, ends[reader])
        now += cap.delay(piece, now)
        cap.take(piece, now)
        read = piece if chance.random() < 0.7 else chance.randint(0, piece)
        ends[reader] = now + chance.random() * 0.02
        cap.take(read - piece, now)
        reads.append((ends[reader], read))
    assert worst_second(sorted(reads)) <= cap.rate


# --- Target rates by examples; ``tests/property/test_speeds.py`` has what holds for all


MIB = 1 << 20


@pytest.mark.parametrize(
    ("lead", "behind", "caps", "pace", "expected"),
    [
        (100, {2: 0, 3: None, 4: 128 * MIB}, (0, 0), 4, (math.inf, {2: 125, 3: 200, 4: 162.5})),
        (0, {2: 10 * MIB}, (0, 0), 64, (math.inf, {2: 64})),
        (100, {2: None}, (40, 0), 64, (40, {2: 40})),
        (40, {2: None, 3: None}, (0, 80), 4, (72, {2: 15, 3: 15})),
        (80, {2: None}, (0, 80), 4, (72, {2: 8})),
        (5, {}, (0, 80), 1, (80, {})),
    ],
    ids=["without caps the lead is free, the others read a multiple of its rate", "behind an idle lead, at the pace",
         "one reader's cap", "the lead first, the others share the rest", "a busy lead leaves a tenth", "a lone lead"],
)  # fmt: skip
def test_rates_in_mebibytes(
    lead: float, behind: dict[int, int | None], caps: tuple[float, float], pace: float,
    expected: tuple[float, dict[int, float]],
) -> None:  # fmt: skip
    read, total = caps
    told = speeds(lead * MIB, behind, read_rate=read * MIB, total_read_rate=total * MIB, pace=pace * MIB)
    assert told.lead / MIB == pytest.approx(expected[0])
    assert {number: rate / MIB for number, rate in told.others.items()} == pytest.approx(expected[1])


def test_what_one_does_not_want_goes_to_the_others() -> None:
    assert shares({1: 1.0, 2: 10.0, 3: 10.0}, 9.0) == {1: 1.0, 2: 4.0, 3: 4.0}


def test_the_pace_falls_while_the_leads_flows_are_late_and_comes_back() -> None:
    pace = Pace()
    for _ in range(100):
        pace.adjust(0.010, lead_has_flows=True)
    assert pace.rate == Pace.LEAST
    pace.adjust(0.0, lead_has_flows=True)
    assert Pace.LEAST < pace.rate < 2 * Pace.LEAST
    for _ in range(100):
        pace.adjust(0.0, lead_has_flows=True)
    assert pace.rate == Pace.MOST
    pace.adjust(0.010, lead_has_flows=True)
    assert pace.rate < Pace.MOST
    pace.adjust(0.010, lead_has_flows=False)
    assert pace.rate == Pace.MOST, "nobody is served late where the lead carries nobody"
