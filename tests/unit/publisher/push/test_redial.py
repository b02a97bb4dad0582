"""How a stream is dialled again, and at what pace it writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.push.pacing import RoundCost, gather_interval
from publisher.push.spacing import Spacing
from wormhole.push.redial import Redial

# --- Who gets nothing done is tried again less and less often


def waits(times: int, *, lasted_s: float = 0.0, acked: bool = False, refused: bool = False) -> list[float]:
    redial = Redial()
    return [redial.wait_s(lasted_s=lasted_s, acked=acked, refused=refused, left=False) for _ in range(times)]


def test_who_cannot_be_reached_is_dialled_after_five_seconds_at_last() -> None:
    assert waits(8) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_who_is_refused_is_dialled_after_a_minute_at_last_whatever_it_did() -> None:
    assert waits(12, lasted_s=100.0, acked=True, refused=True)[-3:] == [51.2, 60.0, 60.0]


def test_a_connection_that_served_is_dialled_at_once() -> None:
    assert waits(3, acked=True) == waits(3, lasted_s=10.0) == [0.05, 0.05, 0.05]


def test_who_comes_and_goes_and_acknowledges_nothing_is_no_better_than_who_does_not_come() -> None:
    assert waits(4, lasted_s=9.0) == waits(4)


def test_who_left_is_dialled_in_no_hurry() -> None:
    assert Redial().wait_s(lasted_s=60.0, acked=True, refused=False, left=True) == 0.8


def test_a_flow_may_be_given_away_a_few_times_and_then_from_time_to_time() -> None:
    spacing = Spacing()
    for _ in range(8):
        spacing.given(100.0)
    assert spacing.until == 0.0
    spacing.given(100.0)
    assert spacing.until == 100.1
    for _ in range(20):
        spacing.given(100.0)
    assert spacing.until == 105.0
    spacing.acknowledged()
    assert spacing.until == 0.0


def test_what_was_long_ago_is_forgotten() -> None:
    spacing = Spacing()
    for _ in range(9):
        spacing.given(100.0)
    spacing.until = 0.0
    spacing.given(161.0)
    assert spacing.until == 0.0


# --- How long a busy stream waits before it writes again


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
