"""How long to wait for what was taken, and how much work a subscriber may cause."""

from __future__ import annotations

from wormhole.push.allowance import Reading, TokenBucket


def test_much_work_is_followed_by_a_rest_and_little_is_not() -> None:
    reading = Reading()
    reading.streams = 1
    allowance = reading.allowance(10.0)
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


def test_over_time_no_more_goes_than_the_rate_says() -> None:
    bucket, now = TokenBucket(lambda: 1000.0, 250.0, 0.0), 0.0
    for _ in range(100):
        now += bucket.wait_s(100, now)
    assert 9.5 < now <= 10.0


def test_a_pause_saves_up_no_more_than_the_bucket_holds() -> None:
    bucket = TokenBucket(lambda: 1000.0, 250.0, 0.0)
    assert bucket.wait_s(250, 100.0) == 0.0
    assert bucket.wait_s(1, 100.0) == 0.001


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(lambda: 0.0, 0.0, 0.0)
    assert [bucket.wait_s(1 << 30, 0.0) for _ in range(3)] == [0.0] * 3
