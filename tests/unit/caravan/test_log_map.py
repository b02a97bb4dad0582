"""Distances in a log."""

from __future__ import annotations

import pytest

from caravan.log_map import LogMap
from wormhole.model.position import LogPosition


def at(file: int, offset: int, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, file, offset)


FILES = LogMap([(3, 100), (5, 50), (9, 10)])


@pytest.mark.parametrize(
    ("start", "end", "bytes_"),
    [
        (at(3, 10), at(3, 30), 20),
        (at(3, 10), at(5, 5), 95),
        (at(3, 0), at(9, 10), 160),
        (at(9, 10), at(3, 0), -160),
        (at(7, 1), at(7, 5), 4),
        (at(4, 0), at(9, 0), None),
        (at(3, 0), at(10, 0), None),
        (at(3, 0), at(3, 0, incarnation=2), None),
    ],
)
def test_between(start: LogPosition, end: LogPosition, bytes_: int | None) -> None:
    assert FILES.between(start, end) == bytes_


def test_without_files_only_within_one() -> None:
    assert LogMap().between(at(1, 2), at(1, 5)) == 3
    assert LogMap().between(at(1, 2), at(2, 5)) is None
    assert LogMap().between(at(2, 2), at(1, 5)) is None
