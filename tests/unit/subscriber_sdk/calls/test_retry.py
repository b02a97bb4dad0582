"""Attempts are counted by shard; an acknowledgement resets the count."""

from __future__ import annotations

import pytest

from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.options.subscriber_options import RetryPolicy
from wormhole.model.errors import ConfigError
from wormhole.model.position import LogPosition


def place(offset: int, index: int = 0) -> tuple[LogPosition, int]:
    return LogPosition(1, 1, offset), index


def test_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=9, first_wait=0.5, longest_wait=3.0)
    assert [policy.wait(n, 0.0) for n in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_chance_takes_up_to_half_off() -> None:
    policy = RetryPolicy(first_wait=1.0)
    assert policy.wait(1, 1.0) == 0.5
    assert policy.wait(1, 0.5) == 0.75


def test_a_million_failures_do_not_overflow() -> None:
    assert RetryPolicy(longest_wait=60.0).wait(1_000_000, 0.0) == 60.0


@pytest.fixture
def retry() -> Retry:
    return Retry(RetryPolicy(attempts=3), lambda: 0.0)


def test_attempts_count_the_first_try(retry: Retry) -> None:
    assert [retry.failed(place(5)) for _ in range(3)] == [True, True, False]


def test_a_single_attempt_is_never_repeated() -> None:
    assert not Retry(RetryPolicy(attempts=1), lambda: 0.0).failed(None)


def test_a_failure_further_on_begins_a_new_count(retry: Retry) -> None:
    retry.failed(place(5))
    retry.failed(place(5))
    assert retry.failed(place(5, 1))
    assert retry.failures == 1


def test_a_failure_before_the_furthest_goes_on_counting(retry: Retry) -> None:
    retry.failed(place(5))
    retry.failed(place(4))
    assert not retry.failed(place(3))


def test_failures_without_a_place_count_too() -> None:
    retry = Retry(RetryPolicy(attempts=2), lambda: 0.0)
    assert retry.failed(None)
    assert not retry.failed(place(1))


def test_a_reset_forgets() -> None:
    retry = Retry(RetryPolicy(attempts=2), lambda: 0.0)
    retry.failed(place(5))
    retry.reset()
    assert retry.failed(place(1))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"first_wait": -1.0}, "first_wait"),
        ({"longest_wait": float("inf")}, "longest_wait"),
    ],
)
def test_impossible_policies_name_the_field(fields: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=f"retry.{named}"):
        RetryPolicy(**fields)  # type: ignore[arg-type]
