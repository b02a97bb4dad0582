"""Target rates by examples; ``tests/property/test_speeds.py`` has what holds for all."""

from __future__ import annotations

import math

import pytest

from caravan.speeds import Pace, shares, speeds

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
