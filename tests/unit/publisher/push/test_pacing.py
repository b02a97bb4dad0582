"""How long a busy stream waits before it writes again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from publisher.push.pacing import gather_interval


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
