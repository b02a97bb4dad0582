"""How much work a subscriber may cause, and how long it is not read when it caused more."""

from __future__ import annotations

from wormhole.push.allowance import Allowance, Reading


def test_much_work_is_followed_by_a_rest_and_little_is_not() -> None:
    reading = Reading()
    reading.streams = 1
    allowance = Allowance(reading, 10.0)
    assert allowance.wait_s(20_000, 10.0) == 0.0
    assert allowance.wait_s(50_000, 10.0) == 0.5
    assert allowance.wait_s(0, 10.5) == 0.0
    assert allowance.wait_s(20_000, 60.0) == 0.0  # no more is saved up than at the beginning
    assert allowance.wait_s(1000, 60.0) == 0.01


def test_many_streams_share_the_work_and_each_is_sure_of_some() -> None:
    reading = Reading()
    rates = []
    for reading.streams in (0, 1, 5, 10, 1000):
        rates.append(reading.rate)
    assert rates == [100_000, 100_000, 100_000, 50_000, 10_000]
