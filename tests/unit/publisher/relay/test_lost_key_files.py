"""The files that say which rows lost log changed: what they cover, and what becomes of them."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.relay import lost_key_files as module
from publisher.relay.disk import DISK
from publisher.relay.lost_key_files import LostKeyFiles
from publisher.relay.settings import RelayIdentity
from tests.support.present import present
from tests.unit.publisher.relay.test_lost_keys import changes, keys, place
from wormhole.model.errors import DecodeError
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row

IDENTITY = RelayIdentity("log", "mysql", "log", 1 << 20, "")


def insert(key: int, shard: str = "s") -> Segment:
    return changes((shard, "t", encode_row(Op.INSERT, (key,), after=("x",))))


def note(files: LostKeyFiles, begin: int, end: int, *segments: Segment) -> None:
    files.note([replace(segment, end=place(end)) for segment in segments], place(begin), place(end))


def noted(folder: Path) -> LostKeyFiles:
    """Three relay files that adjoin, and one behind a hole."""
    files = LostKeyFiles(folder, IDENTITY)
    for number, (begin, end) in enumerate([(10, 20), (0, 10), (20, 30), (40, 50)]):
        note(files, begin, end, insert(number), insert(number, "r"))
    return files


@pytest.mark.parametrize("again", [False, True])
def test_keys_of_what_is_covered(tmp_path: Path, again: bool) -> None:
    files = noted(tmp_path)
    if again:
        files = LostKeyFiles(tmp_path, IDENTITY)
    for begin, end, expected in [
        (0, 30, {0, 1, 2}),
        (5, 15, {0, 1}),
        (10, 20, {0}),
        (25, 30, {2}),
        (41, 50, {3}),
    ]:
        assert present(files.keys("s", place(begin), place(end))).tables["t"].keys == keys(*expected)
    for begin, end in [(25, 31), (30, 40), (25, 45), (45, 51), (60, 70), (20, 20), (20, 10)]:
        assert files.keys("s", place(begin), place(end)) is None
    assert not present(files.keys("elsewhere", place(0), place(30))).tables


def test_what_nobody_asks_for_any_more_goes(tmp_path: Path) -> None:
    files = noted(tmp_path)
    files.release(place(10))
    assert files.keys("s", place(9), place(10)) is None
    assert files.keys("s", place(10), place(30)) is not None
    files.release(place(29))
    assert files.keys("s", place(20), place(30)) is not None
    files.clear()
    assert not list(tmp_path.iterdir())


def test_over_the_bound_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(module, "_MOST_BYTES", size)
    files = LostKeyFiles(tmp_path, IDENTITY)
    note(files, 50, 60, insert(9))
    assert files.keys("s", place(0), place(10)) is None
    assert files.keys("s", place(40), place(60)) is not None


def test_a_damaged_file_and_one_of_another_relay_are_removed(tmp_path: Path) -> None:
    files = noted(tmp_path)
    [_, second, *_] = sorted(tmp_path.iterdir())
    second.write_bytes(second.read_bytes()[:-1])
    assert files.keys("s", place(0), place(30)) is None
    assert not second.exists()
    assert files.keys("s", place(20), place(30)) is not None
    [first, *_] = sorted(tmp_path.iterdir())
    first.write_bytes(b"")
    assert LostKeyFiles(tmp_path, IDENTITY).keys("s", place(0), place(10)) is None
    assert not first.exists()
    other = LostKeyFiles(tmp_path, RelayIdentity("log", "mysql", "table", 1 << 20, ""))
    assert other.keys("s", place(20), place(30)) is None
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_noted_is_not_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = LostKeyFiles(tmp_path / "nowhere", IDENTITY)
    note(files, 0, 10, insert(1))
    assert "whole tables" in caplog.text
    assert files.keys("s", place(0), place(10)) is None

    def broken() -> object:
        yield insert(1)
        raise DecodeError("a checksum is wrong")

    files = LostKeyFiles(tmp_path, IDENTITY)
    files.note(broken(), place(0), place(10))  # type: ignore[arg-type]
    assert "a checksum is wrong" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_written_whole_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LostKeyFiles(tmp_path, IDENTITY)

    class Full:
        def write(self, offset: int, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "full")

        def close(self) -> None:
            pass

    class Disk:
        def create(self, path: Path) -> Full:
            path.touch()
            return Full()

        def __getattr__(self, name: str) -> object:
            return getattr(DISK, name)

    monkeypatch.setattr(files, "_disk", Disk())
    note(files, 0, 10, insert(1))
    assert not list(tmp_path.iterdir())
    assert files.keys("s", place(0), place(10)) is None


def test_a_file_that_is_noted_twice_is_replaced(tmp_path: Path) -> None:
    files = noted(tmp_path)
    note(files, 0, 20, insert(7))
    assert present(files.keys("s", place(0), place(20))).tables["t"].keys == keys(7)
