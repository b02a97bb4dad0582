"""Target rates by examples; ``tests/property/test_speeds.py`` has what holds for all."""

from __future__ import annotations

import math

import pytest

from caravan.speeds import Pace, shares, speeds

MIB = 1 << 20


def test_without_caps_the_lead_is_free_and_the_others_read_a_multiple_of_its_rate() -> None:
    told = speeds(100 * MIB, {2: 0, 3: None, 4: 128 * MIB}, read_rate=0, total_read_rate=0, pace=4 * MIB)
    assert told.lead == math.inf
    assert told.others == {2: 125 * MIB, 3: 200 * MIB, 4: pytest.approx(162.5 * MIB)}


def test_behind_an_idle_lead_they_read_at_the_pace() -> None:
    assert speeds(0, {2: 10 * MIB}, read_rate=0, total_read_rate=0, pace=64 * MIB).others == {2: 64 * MIB}


def test_one_reader_never_exceeds_its_cap() -> None:
    told = speeds(100 * MIB, {2: None}, read_rate=40 * MIB, total_read_rate=0, pace=64 * MIB)
    assert (told.lead, told.others[2]) == (40 * MIB, 40 * MIB)


def test_the_lead_comes_first_and_the_others_share_what_is_left() -> None:
    told = speeds(40 * MIB, {2: None, 3: None}, read_rate=0, total_read_rate=80 * MIB, pace=4 * MIB)
    assert told.lead == pytest.approx(72 * MIB)
    assert told.others == {2: pytest.approx(15 * MIB), 3: pytest.approx(15 * MIB)}


def test_a_lead_that_needs_everything_leaves_a_tenth() -> None:
    told = speeds(80 * MIB, {2: None}, read_rate=0, total_read_rate=80 * MIB, pace=4 * MIB)
    assert told.others[2] == pytest.approx(8 * MIB)


def test_a_lone_lead_has_all() -> None:
    assert speeds(5, {}, read_rate=0, total_read_rate=80, pace=1).lead == 80


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
