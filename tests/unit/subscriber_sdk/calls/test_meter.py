"""What the measure tells, for times that the test gives."""

from __future__ import annotations

import pytest

from subscriber_sdk.calls.meter import Meter
from subscriber_sdk.testing import update
from tests.support.letters import parcel_of
from wormhole.ports.dead_letters import open_parcel
from wormhole.wire.update import Update


def of(table: str) -> Update:
    return open_parcel(parcel_of(update(table, key=1)))


SLOW, FAST = of("slow"), of("fast")


@pytest.fixture
def meter() -> Meter:
    return Meter()


def test_the_slowest_of_those_that_are_timed_is_known(meter: Meter) -> None:
    meter.begin(10.0)
    for one, at in ((FAST, 10.0), (SLOW, 10.1), (FAST, 12.1)):
        meter.lap(one, at)
    meter.end([FAST, SLOW, FAST], 12.2)
    assert meter.slowest() == ("slow", 2.0)
    assert meter.slowest() == ("", 0.0)
    assert round(meter.busy, 6) == 2.2
    assert meter.timing


def test_fast_callbacks_are_not_timed_and_slow_ones_again(meter: Meter) -> None:
    many = [FAST] * 64
    timing = []
    for began, took in ((0.0, 64 * 10e-6), (1.0, 0.5)):
        meter.begin(began)
        meter.end(many, began + took)
        timing.append(meter.timing)
    assert timing == [False, True]
    assert meter.slowest() == ("fast", 0.5)


def test_a_slow_piece_of_several_tables_names_none(meter: Meter) -> None:
    meter.begin(0.0)
    meter.end([FAST, SLOW], 3.0)
    assert meter.slowest() == ("", 3.0)


def test_what_runs_now_and_since_when(meter: Meter) -> None:
    assert meter.running(FAST, 5.0) == (None, 0.0)
    meter.begin(5.0)
    assert meter.running(None, 6.0) == (None, 0.0)
    assert meter.running(FAST, 6.0) == (FAST, 1.0)
    meter.lap(SLOW, 7.0)
    assert meter.running(SLOW, 7.5) == (SLOW, 0.5)
    assert meter.spent(8.0) == 3.0
    meter.end([SLOW], 8.0)
    meter.end([], 9.0)
    assert (meter.spent(10.0), meter.running(None, 10.0)) == (3.0, (None, 0.0))


def test_callbacks_side_by_side(meter: Meter) -> None:
    meter.enter(SLOW, 1.0)
    meter.enter(FAST, 2.0)
    assert meter.running(None, 3.0) == (SLOW, 2.0)
    assert meter.spent(3.0) == 3.0
    meter.leave(FAST, 3.0)
    meter.leave(SLOW, 5.0)
    assert meter.busy == 5.0
    assert meter.slowest() == ("slow", 4.0)
