"""Alive but stuck is told; idle, slow and at the live end are not."""

from __future__ import annotations

from publisher.flows.progress import Progress
from wormhole.model.position import LogPosition


def at(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def after(*measured: tuple[int, int | None]) -> float | None:
    """One measurement a second, from second 0 on; asked in the second after."""
    progress = Progress()
    for second, (offset, behind) in enumerate(measured):
        progress.measured(at(offset), behind, float(second))
    return progress.stuck_s(float(len(measured)))


def test_a_log_that_grows_while_nothing_is_read_is_reported_since_it_began_to() -> None:
    progress = Progress()
    for second, behind in enumerate((10, 10, 20, 20, 30)):
        progress.measured(at(5), behind, float(second))
    assert progress.stuck_s(9.0) == 7.0  # since second 2


def test_what_does_not_grow_and_is_little_is_no_matter() -> None:
    assert after(*[(5, 64 << 20)] * 100) is None  # a recycled file ends with an older log
    assert after((5, 10), *[(5, 4000)] * 100) is None  # one record that is half written


def test_who_moves_is_not_stuck_however_far_behind() -> None:
    assert after((5, 1 << 30), (6, 1 << 31), (7, 1 << 32)) is None


def test_progress_ends_it() -> None:
    stuck = [(5, 10), (5, 20), (5, 30)]
    assert after(*stuck) is not None
    assert after(*stuck, (6, 29)) is None
    assert after(*stuck, (5, 0)) is None
    assert after(*stuck, (5, None)) is None


def test_who_waits_for_room_or_reads_a_large_transaction_is_not_stuck() -> None:
    progress = Progress()
    for second in range(10):
        progress.measured(at(5), 1000 * second, float(second), waits=True)
    assert progress.stuck_s(10.0) is None
    for second in range(10, 20):
        progress.measured(at(5), 1000 * second, float(second), read=second)
    assert progress.stuck_s(20.0) is None


def test_a_log_that_nobody_reads_is_reported_whether_it_grows_or_not() -> None:
    progress = Progress()
    progress.measured(None, None, 0.0)
    assert progress.stuck_s(7.0) == 7.0
    progress.measured(at(5), 100, 8.0)
    assert progress.stuck_s(9.0) is None
