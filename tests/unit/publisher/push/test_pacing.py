"""How long a busy stream waits before it writes again, and one that costs much before it is read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from publisher.push.pacing import Allowance, Reading, gather_interval


@given(st.integers(0, 10_000), st.floats(0, 10))
def test_it_stays_within_the_documented_bounds(streams: int, lag: float) -> None:
    assert 0 <= gather_interval(streams, lag) <= 0.008


@given(st.integers(1, 100), st.floats(0, 0.01))
def test_more_streams_and_a_late_loop_gather_longer(streams: int, lag: float) -> None:
    assert gather_interval(streams, lag) <= gather_interval(streams + 1, lag)
    assert gather_interval(streams, lag) <= gather_interval(streams, lag + 0.001)


def test_a_lone_stream_hardly_waits() -> None:
    assert gather_interval(1, 0.0) < 0.003


def test_nobody_to_write_to_gathers_longest() -> None:
    assert gather_interval(0, 0.0) == 0.008


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
