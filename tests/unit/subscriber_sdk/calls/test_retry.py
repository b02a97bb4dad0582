"""Attempts are counted by shard; an acknowledgement resets the count."""

from __future__ import annotations

import pytest

from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.options.subscriber_options import RetryPolicy
from wormhole.model.errors import ConfigError
from wormhole.model.position import LogPosition


def place(offset: int, index: int = 0) -> tuple[LogPosition, int]:
    return LogPosition(1, 1, offset), index


@pytest.mark.parametrize(
    ("policy", "chance", "waits"),
    [
        (RetryPolicy(attempts=9, first_wait=0.5, longest_wait=3.0), 0.0, [0.5, 1.0, 2.0, 3.0, 3.0]),
        (RetryPolicy(first_wait=1.0), 1.0, [0.5]),
        (RetryPolicy(first_wait=1.0), 0.5, [0.75]),
    ],
)
def test_waits_double_up_to_the_longest_and_chance_takes_up_to_half_off(
    policy: RetryPolicy, chance: float, waits: list[float]
) -> None:
    assert [policy.wait(number, chance) for number in range(1, len(waits) + 1)] == waits


def test_a_million_failures_do_not_overflow() -> None:
    assert RetryPolicy(longest_wait=60.0).wait(1_000_000, 0.0) == 60.0


@pytest.mark.parametrize(
    ("attempts", "fails", "again"),
    [
        (3, [place(5), place(5), place(5)], [True, True, False]),
        (1, [None], [False]),
        (3, [place(5), place(5), place(5, 1), place(5, 1), place(5, 1)], [True, True, True, True, False]),
        (3, [place(5), place(4), place(3)], [True, True, False]),
        (2, [None, place(1)], [True, False]),
    ],
    ids=["the first try counts", "a single attempt", "further on a new count", "before the furthest", "no place"],
)
def test_attempts_are_counted_up_to_the_furthest_place(
    attempts: int, fails: list[tuple[LogPosition, int] | None], again: list[bool]
) -> None:
    retry = Retry(RetryPolicy(attempts=attempts), lambda: 0.0)
    assert [retry.failed(one) for one in fails] == again


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
