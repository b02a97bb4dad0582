"""A relay's folder as a command reads it: nothing is changed, damage is found, and the oldest files go."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from publisher.relay.disk import DISK
from publisher.relay.files import LOCK
from publisher.relay.folder import look, trim, verify
from tests.support.relay_scene import FilesScene
from wormhole.model.errors import SourceUnavailable, UsageError


@pytest.fixture
def scene(tmp_path: Path) -> FilesScene:
    """Files that were completed, and one that is being written."""
    made = FilesScene(tmp_path / "relay", file_bytes=1000)
    made.files.begin(made.start)
    for rows in (10, 10, 10, 1):
        made.recorded(rows=rows, size=100)
    return made


def nothing(done: int, total: int) -> None:
    assert done <= total


def test_a_look_and_a_whole_reading_find_the_same(scene: FilesScene) -> None:
    made = scene.files.files
    before = {path: path.read_bytes() for path in scene.folder.iterdir()}
    seen: list[tuple[int, int]] = []
    for found in (look(scene.folder), verify(scene.folder, lambda *done: seen.append(done))):
        assert [one.path for one in found] == [one.path for one in made]
        assert [one.begin for one in found] == [one.begin for one in made]
        assert [one.end for one in found] == [one.end.order for one in made]
        assert sum(one.log_bytes for one in found) == scene.files.log_bytes
        assert [one.error for one in found] == [""] * len(made)
    size = sum(one.bytes for one in made)
    assert seen[-1] == (size, size)
    assert {path: path.read_bytes() for path in scene.folder.iterdir()} == before


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert look(tmp_path / "none") == []


def test_each_damage_is_found_in_its_file(scene: FilesScene) -> None:
    scene.files.close()
    first, second, *_ = sorted(scene.folder.glob("*.wrf"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    second.write_bytes(b"no relay file")
    found = verify(scene.folder, nothing)
    assert found[0].error.startswith("behind byte ")
    assert found[1].error == "the file does not begin as a relay file"
    assert not found[-1].error
    assert [bool(one.error) for one in look(scene.folder)][:2] == [False, True], "an index is believed"


def test_the_end_of_a_file_that_is_written_is_no_damage(scene: FilesScene) -> None:
    last = scene.files.files[-1]
    with last.path.open("ab") as file:
        file.write(b"half a record")
    state = verify(scene.folder, nothing)[-1]
    assert (state.error, state.end) == ("", last.end.order)
    assert state.unfinished == 13


def test_a_file_of_another_release_says_so(scene: FilesScene) -> None:
    first = scene.files.files[0].path
    data = bytearray(first.read_bytes())
    data[8] = 99
    first.write_bytes(data)
    assert look(scene.folder)[0].error == "it is of another release: format version 99 instead of 1"


def test_the_oldest_files_go_and_only_while_nobody_writes(scene: FilesScene) -> None:
    with pytest.raises(UsageError, match="a publisher has"):
        trim(scene.folder, 0)
    scene.files.close()
    sizes = [one.bytes for one in look(scene.folder)]
    assert trim(scene.folder, sum(sizes)) == 0
    assert trim(scene.folder, sum(sizes) - 1) == sizes[0]
    lost = scene.folder / "1.lost"
    lost.write_text("keys")
    assert trim(scene.folder, 0) == sum(sizes[1:])
    assert not lost.exists()
    assert look(scene.folder) == []
    with closing(DISK.lock(scene.folder / LOCK)):
        pass


def test_a_disk_that_does_not_answer_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (look, lambda folder: trim(folder, 0)):
        with pytest.raises(SourceUnavailable, match="cannot be read"):
            command(tmp_path / "file")
