from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.rocksdb.history.time_index import TimeIndex
from tests.support.present import present
from wormhole.model.position import LogPosition


class World:
    """A clock, and sizes and times of WAL files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_000_000_000
        self.files: dict[int, tuple[int, int]] = {}
        self.index = self.open()

    def open(self) -> TimeIndex:
        return TimeIndex(self.path, lambda n: self.files.get(n, (0, 0)), lambda: self.now)

    def reopen(self) -> None:
        self.index.close()
        self.index = self.open()

    def at(self, file: int, offset: int, live: bool = True) -> int:
        return self.index.committed_at(LogPosition(1, file, offset), live)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "times")
    yield made
    made.index.close()


def test_one_entry_a_second_and_the_same_again(world: World) -> None:
    given = []
    for offset in range(100, 5000, 100):
        given.append(world.at(4, offset))
        world.now += 130_000
    assert len(set(given)) == 7
    assert given == sorted(given)
    assert [world.at(4, offset, live=False) for offset in range(100, 5000, 100)] == given
    world.now += 10**9
    world.reopen()
    assert [world.at(4, offset) for offset in range(100, 5000, 100)] == given


def test_what_was_there_at_a_look_is_covered_by_it(world: World) -> None:
    world.files[4] = (1000, 0)
    first = world.at(4, 10)
    world.now += 5_000_000
    assert world.at(4, 1000) == first
    assert world.at(4, 1001) == world.now


def test_a_backlog_gets_the_times_of_its_files(world: World) -> None:
    world.files = {4: (1000, 600_000_000), 8: (1000, 700_000_000)}
    world.index.file_appeared(1, 8, 600_000_000)
    assert world.at(4, 500, live=False) == 600_000_000
    assert world.at(8, 500, live=False) <= 700_000_000
    world.files = {}
    assert world.at(4, 400, live=False) == 600_000_000
    world.reopen()
    assert world.at(4, 900, live=False) == 600_000_000


def test_time_never_falls_when_the_clock_does(world: World) -> None:
    first = world.at(4, 10)
    world.now -= 500_000_000
    assert world.at(4, 20) == first
    world.index.file_appeared(1, 9, world.now)
    assert world.at(9, 10) >= first


def test_a_torn_entry_is_cut_off(world: World, tmp_path: Path) -> None:
    first = world.at(4, 10)
    world.now += 2_000_000
    world.at(4, 20)
    world.index.close()
    path = tmp_path / "times"
    path.write_bytes(path.read_bytes()[:-5])
    world.index = world.open()
    assert world.at(4, 10) == first
    world.now += 2_000_000
    later = world.at(4, 30)
    world.reopen()
    assert world.at(4, 30) == later


def test_prune_keeps_what_later_places_need(world: World) -> None:
    for n in range(5000):
        world.now += 1_000_000
        world.at(4, 10 + n)
    kept = [world.at(4, 10 + n) for n in range(4500, 5000)]
    size = world.path.stat().st_size
    world.index.prune(LogPosition(1, 4, 4510))
    assert world.path.stat().st_size < size // 5
    assert [world.at(4, 10 + n) for n in range(4500, 5000)] == kept
    world.reopen()
    assert [world.at(4, 10 + n) for n in range(4500, 5000)] == kept


def test_a_foreign_file_is_begun_anew(world: World) -> None:
    world.index.close()
    world.path.write_bytes(b"something else")
    world.index = world.open()
    assert world.at(4, 10) == world.now


def test_until_a_time_is_before_everything_that_may_be_later(world: World) -> None:
    assert world.index.until(world.now) is None
    begun = world.now
    # One transaction at each full second, and one half a second later that gets the same time.
    for second in range(5):
        world.at(4, 100 + second * 200)
        world.now += 500_000
        world.at(4, 200 + second * 200)
        world.now += 500_000
    assert world.index.until(begun - 1) == (LogPosition(1, 4, 100), begun)
    # What was told the time of second 2 was committed until second 3 began.
    for at, offset in ((0, 100), (999_999, 100), (1_000_000, 300), (2_999_999, 500), (3_000_000, 700)):
        assert present(world.index.until(begun + at))[0] == LogPosition(1, 4, offset)
    assert world.index.until(begun + 5_000_000) == (LogPosition(1, 4, 1001), 0)
    world.reopen()
    assert world.index.until(begun + 5_000_000) == (LogPosition(1, 4, 1001), 0)


def test_an_index_that_was_lost_gives_times_anew(world: World, tmp_path: Path) -> None:
    world.at(1, 100)
    world.index.close()
    (tmp_path / "times").unlink()
    world.index = world.open()
    assert world.at(1, 50)
    assert world.at(1, 100)
