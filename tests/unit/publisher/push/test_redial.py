"""Who gets nothing done is tried again less and less often."""

from __future__ import annotations

from publisher.push.redial import Redial, Spacing


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
