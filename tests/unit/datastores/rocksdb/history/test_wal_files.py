from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.rocksdb.history.files import live_files
from datastores.rocksdb.history.wal_files import WalHistory
from tests.support.present import present


class World:
    """A directory of WAL files and the history that keeps them."""

    def __init__(self, folder: Path) -> None:
        self.live = folder / "store"
        self.live.mkdir()
        self.kept = folder / "1" / "wal"
        self.appeared: list[int] = []
        self.open()

    def open(self, budget: int = 1 << 20) -> None:
        self.history = WalHistory(1, self.kept, budget, lambda number, _: self.appeared.append(number))

    def write(self, number: int, data: bytes) -> None:
        with (self.live / f"{number:06}.log").open("ab") as file:
            file.write(data)

    def delete(self, number: int) -> None:
        (self.live / f"{number:06}.log").unlink()

    def look(self, *, recycles: bool = False) -> None:
        self.history.observe(live_files(self.live), recycles=recycles)

    def write_and_look(self, number: int, data: bytes) -> None:
        self.write(number, data)
        self.look()

    def conflict(self) -> str | None:
        return self.history.conflict(live_files(self.live))

    def numbers(self) -> list[int]:
        found, number = [], self.history.newer(-1)
        while number is not None:
            found.append(number)
            number = self.history.newer(number)
        return found

    def content(self, number: int) -> bytes:
        return present(self.history.path(number)).read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.history.end()


def test_a_deleted_file_is_still_there(world: World) -> None:
    world.write_and_look(4, b"one")
    world.write(4, b"two")  # after the last look
    world.delete(4)
    world.write_and_look(8, b"three")
    assert world.numbers() == [4, 8]
    assert world.content(4) == b"onetwo"
    assert world.history.pinned_bytes == 6
    assert world.appeared == [4, 8]


def test_a_restart_finds_what_was_kept(world: World) -> None:
    world.write_and_look(4, b"one")
    world.delete(4)
    world.open()
    world.look()
    assert world.numbers() == [4]
    assert world.history.highest == 4


def test_release_keeps_the_file_of_the_anchor(world: World) -> None:
    for number in (4, 8, 12):
        world.write(number, b"x")
        world.look()
    world.history.release(12, 0)
    assert world.numbers() == [8, 12]
    world.history.release(12, 1)
    assert world.numbers() == [12]
    world.look()  # the released ones are live still
    assert world.numbers() == [12]


def test_over_the_budget_the_oldest_is_deleted_and_reported(world: World) -> None:
    world.open(budget=10)
    for number in (4, 8, 12):
        world.write(number, b"x" * 8)
        world.look()
    for number in (4, 8):
        world.delete(number)
    world.look()
    assert world.numbers() == [8, 12]
    assert "WAL files 4 were dropped" in world.history.problems()[0]
    assert world.history.may_lack(3, 8, [])
    world.history.release(12, 1)
    assert not world.history.problems()


def test_another_file_under_a_known_number_is_another_history(world: World) -> None:
    world.write_and_look(4, b"one")
    assert world.conflict() is None
    world.delete(4)
    world.write(4, b"other")
    assert "another file" in str(world.conflict())


def test_the_same_content_on_another_disk_is_the_same_history(world: World) -> None:
    world.write_and_look(4, b"one")
    world.delete(4)
    world.write(4, b"one and more")
    assert world.conflict() is None


@pytest.mark.parametrize("there", [b"", b"on", b"two"])
def test_records_written_after_the_last_scan_show_a_replaced_file(world: World, there: bytes) -> None:
    """An older copy was restored and opened: it makes its own file with the number, before anybody measured the
    first one."""
    world.write_and_look(4, b"")
    world.write(4, b"one")
    world.delete(4)
    world.write(4, there)
    assert world.conflict() is not None


def test_a_replaced_file_that_is_gone_again_takes_nothing_of_what_was_kept(world: World) -> None:
    world.write_and_look(4, b"one")
    world.delete(4)
    world.write(4, b"one and more")
    seen = live_files(world.live)
    assert world.history.conflict(seen) is None
    world.delete(4)
    world.history.observe(seen, recycles=False)
    assert world.content(4) == b"one"


def test_a_replaced_file_is_kept_by_a_copy_where_no_link_can_be_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_and_look(4, b"one")
    os.link(world.live / "000004.log", world.live / "kept by its owner")
    world.delete(4)
    world.write(4, b"one and more")

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "another device")

    monkeypatch.setattr(os, "link", refused)
    world.look()
    assert world.content(4) == b"one and more"
    assert (world.live / "kept by its owner").read_bytes() == b"one"


def test_a_number_that_went_back_is_another_history(world: World) -> None:
    world.write_and_look(8, b"one")
    world.write(5, b"new")
    assert "appeared after" in str(world.conflict())


@pytest.mark.parametrize("stopped", [True, False], ids=["the publisher stopped", "events were lost"])
def test_files_that_came_and_went_in_a_pause_may_be_missing(world: World, stopped: bool) -> None:
    world.write_and_look(4, b"one")
    if stopped:
        world.open()
    else:
        world.history.watch_again()
    world.delete(4)
    world.write_and_look(12, b"x")
    assert world.history.may_lack(4, 12, [])
    world.write_and_look(14, b"x")
    assert not world.history.may_lack(12, 14, [])
    assert world.history.may_lack(12, 14, [13])


def test_a_link_is_made_at_once(world: World) -> None:
    world.write_and_look(4, b"one")
    world.write(8, b"two")
    path = world.live / "000008.log"
    assert world.history.grab(path) == world.history.link(path)
    world.delete(8)
    live = live_files(world.live) | live_files(world.kept)
    world.history.keep_now(live[8])
    assert world.content(8) == b"two"
    assert world.history.grab(world.live / "000004.log") is None


@pytest.mark.parametrize("at_once", [False, True])
def test_a_file_deleted_between_scan_and_link_is_missing_and_not_read(world: World, at_once: bool) -> None:
    world.write_and_look(3, b"kept")
    world.write(4, b"gone")
    world.write(5, b"next")
    seen = live_files(world.live)
    world.delete(4)
    if at_once:
        world.history.keep_now(seen[4])
        world.look()
    else:
        world.history.observe(seen, recycles=False)
    assert world.numbers() == [3, 5]
    assert world.history.path(4) is None
    assert world.history.may_lack(3, 5, ())
    assert not world.history.may_lack(4, 5, ())


def test_a_missed_file_is_reported_although_the_next_was_found_first(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write_and_look(3, b"kept")
    world.write_and_look(5, b"found by the look")
    for number in (3, 4, 5, 4):
        world.history.missed(number)  # as the directory told, a moment later
    assert caplog.messages == ["WAL 4 was deleted before it could be kept"]
    assert world.history.may_lack(3, 5, ())
    assert not world.history.may_lack(4, 5, ())
    world.history.release(5, 1)
    world.history.missed(3)
    assert len(caplog.records) == 1


def test_waiting_ends_when_something_happens(world: World) -> None:
    waiting = threading.Thread(target=world.history.wait, args=(30.0,))
    waiting.start()
    while waiting.is_alive():
        world.history.wake()
        waiting.join(0.01)


def test_a_full_disk_is_reported_and_passes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_and_look(4, b"one")
    real = os.stat

    with monkeypatch.context() as patched:

        def full(path: object, *args: object, **how: object) -> os.stat_result:
            if str(path).startswith(str(world.kept)):
                raise OSError(28, "No space left on device")
            return real(path, *args, **how)  # type: ignore[arg-type]

        patched.setattr(os, "stat", full)
        world.look()
        assert "No space left on device" in world.history.problems()[0]
    world.look()
    assert not world.history.problems()


def test_sizes_of_what_can_be_read(world: World) -> None:
    world.write(3, b"x" * 30)
    world.write_and_look(5, b"y" * 50)
    world.delete(3)
    world.look()
    world.write(5, b"z")
    assert world.history.sizes() == ((3, 30), (5, 51))
    assert world.history.budget == 1 << 20
