"""How long a busy stream waits before it writes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.push.pacing import RoundCost, gather_interval


@given(st.integers(0, 10_000), st.floats(0, 10), st.floats(0, 10))
def test_it_stays_within_the_documented_bounds(streams: int, lag: float, cost: float) -> None:
    assert 0 <= gather_interval(streams, lag, 0.0) <= 0.008
    assert 0 <= gather_interval(streams, lag, cost) <= 0.025


@given(st.integers(1, 100), st.floats(0, 0.01), st.floats(0, 0.02))
def test_more_streams_a_late_loop_and_dear_rounds_gather_longer(streams: int, lag: float, cost: float) -> None:
    now = gather_interval(streams, lag, cost)
    assert now <= gather_interval(streams + 1, lag, cost)
    assert now <= gather_interval(streams, lag + 0.001, cost)
    assert now <= gather_interval(streams, lag, cost + 0.001)


def test_a_lone_stream_hardly_waits() -> None:
    assert gather_interval(1, 0.0, 0.0005) < 0.003


def test_nobody_to_write_to_gathers_longest() -> None:
    assert gather_interval(0, 0.0, 0.0) == 0.008


@given(st.integers(1, 100), st.floats(0.0001, 0.02), st.floats(0.0001, 1.0))
def test_a_loop_with_time_left_waits_for_nothing(streams: int, cost: float, apart: float) -> None:
    """Rounds that come ``apart`` seconds after each other and take less than 40 % of that are not drawn apart."""
    if cost < 0.4 * apart:
        assert gather_interval(streams, 0.0, cost) <= max(apart, 0.008)


def test_rounds_that_take_the_whole_loop_are_drawn_apart_until_it_has_time_left() -> None:
    """A hundred streams: 7 ms of work in a round, however much it carries."""
    assert gather_interval(100, 0.0, 0.007) == pytest.approx(0.0175)


def test_the_cost_of_a_round_is_what_the_loop_used_for_those_since_it_was_measured() -> None:
    cost = RoundCost()
    cost.measured(10.0, 1000)
    assert cost.seconds == 0.0, "what went before is no guide"
    for step in range(1, 30):
        cost.measured(10.0 + 0.05 * step, 1000 + 10 * step)
    assert cost.seconds == pytest.approx(0.005)
    for _ in range(20):
        cost.measured(11.5, 1290)
    assert cost.seconds < 1e-6, "nothing is read"
