from __future__ import annotations

from spark_replay.replay.progress import Counter, Pace


def test_rates_and_what_is_left_come_of_the_last_seconds() -> None:
    pace = Pace()
    assert pace.look(0.0, 0, 1000, 0, 0, (0, 2)).left_s is None
    now = pace.look(10.0, 500, 1000, 50, 5000, (1, 2))
    assert (now.updates_per_s, now.bytes_per_s, now.left_s, now.share) == (5.0, 500.0, 10.0, 0.5)
    for second in range(11, 61):
        now = pace.look(float(second), 500, 1000, 50, 5000, (1, 2))
    assert (now.updates_per_s, now.left_s) == (0.0, None)


def test_nothing_to_do_is_done() -> None:
    assert Pace().look(0.0, 0, 0, 0, 0, (0, 0)).share == 1.0


def test_a_count_goes_on_where_its_publisher_began_anew() -> None:
    counter = Counter()
    assert [counter.seen(value) for value in (3, 7, 2, 2, 9)] == [3, 7, 9, 9, 16]
    assert counter.value == 16
