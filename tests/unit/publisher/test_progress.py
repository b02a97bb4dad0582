"""Alive but stuck is told; idle, slow and at the live end are not."""

from __future__ import annotations

from publisher.progress import Progress
from wormhole.position import LogPosition


def at(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def after(*measured: tuple[int, int | None]) -> float | None:
    """One measurement a second, from second 0 on; asked in the second after."""
    progress = Progress()
    for second, (offset, behind) in enumerate(measured):
        progress.measured(at(offset), behind, float(second))
    return progress.stuck_s(float(len(measured)))


def test_a_log_that_grows_while_nothing_is_read_is_told_since_it_began_to() -> None:
    progress = Progress()
    for second, behind in enumerate((10, 10, 20, 20, 30)):
        progress.measured(at(5), behind, float(second))
    assert progress.stuck_s(9.0) == 7.0  # since second 2


def test_much_that_nobody_reads_is_told_although_nobody_writes() -> None:
    assert after((5, 1 << 20), (5, 1 << 20), (5, 1 << 20)) == 2.0


def test_what_does_not_grow_and_is_little_is_no_matter() -> None:
    assert after(*[(5, 4000)] * 100) is None
    assert after((5, 10), *[(5, 4000)] * 100) is None  # one record that is half written


def test_who_moves_is_not_stuck_however_far_behind() -> None:
    assert after((5, 1 << 30), (6, 1 << 31), (7, 1 << 32)) is None


def test_progress_ends_it() -> None:
    stuck = [(5, 10), (5, 20), (5, 30)]
    assert after(*stuck) is not None
    assert after(*stuck, (6, 29)) is None
    assert after(*stuck, (5, 0)) is None
    assert after(*stuck, (5, None)) is None


def test_without_a_lead_nothing_is_known() -> None:
    progress = Progress()
    progress.measured(None, None, 0.0)
    assert progress.stuck_s(100.0) is None
