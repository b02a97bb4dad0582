from __future__ import annotations

from spark_replay.replay.rate import Bucket


def test_over_time_no_more_goes_than_the_rate_says() -> None:
    bucket, now = Bucket(1000, 0.0), 0.0
    for _ in range(100):
        now += bucket.wait(100, now)
    assert 9.5 < now <= 10.0


def test_a_pause_saves_up_a_quarter_of_a_second_only() -> None:
    bucket = Bucket(1000, 0.0)
    assert bucket.wait(250, 100.0) == 0.0
    assert bucket.wait(1, 100.0) == 0.0
    assert bucket.wait(1, 100.0) > 0.0


def test_without_a_rate_nothing_waits() -> None:
    bucket = Bucket(0, 0.0)
    assert [bucket.wait(1 << 30, 0.0) for _ in range(3)] == [0.0] * 3
