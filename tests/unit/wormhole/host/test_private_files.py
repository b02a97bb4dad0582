"""Files of a process: private ones, its state, its readiness, and the folder they are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.present import present
from wormhole.host import folder_identity as module
from wormhole.host.folder_identity import identity_of
from wormhole.host.private_files import check_owner, keep_private, private_folder, private_opener
from wormhole.host.ready_file import ReadyFile, process_started, read_ready, ready_path, remove_ready, write_ready
from wormhole.host.state_file import FolderState, read_state, write_state

# --- private files


def test_what_is_created_from_then_on_is_its_users_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_private()
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_text("secret")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "file")] == [0o700, 0o600]


def test_a_file_and_folders_that_are_missing_are_made_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_folder(tmp_path / "a" / "b")
        with open(tmp_path / "a" / "b" / "file", "wb", opener=private_opener) as file:
            file.write(b"secret")
        private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "file"]
    assert [one.stat().st_mode & 0o777 for one in made] == [0o700, 0o700, 0o600]


def test_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"), open(tmp_path / "link", "ab", opener=private_opener):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_another_user_could_change_is_not_used(tmp_path: Path) -> None:
    mine, open_to_all = tmp_path / "mine", tmp_path / "open"
    for folder in (mine, open_to_all):
        folder.mkdir(mode=0o700)
    check_owner(mine)
    for mode, who in (
        (0o777, "every user"),
        (0o1777, "every user"),
        (0o770, f"every user of the group {os.getegid()}"),
    ):
        open_to_all.chmod(mode)
        with pytest.raises(OSError, match=f"{who} may write to it"):
            check_owner(open_to_all)
    below = open_to_all / "a" / "b"
    below.mkdir(parents=True)
    for mode in (0o777, 0o1777, 0o770):
        open_to_all.chmod(mode)
        if mode == 0o777:
            with pytest.raises(OSError, match=f"every user may replace it.*{open_to_all}"):
                check_owner(below)
        else:
            check_owner(below)
    if os.geteuid() == 0:
        theirs, link = tmp_path / "theirs", tmp_path / "link"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
        with pytest.raises(OSError, match="it belongs to another user"):
            check_owner(theirs)
        link.symlink_to(mine)
        os.lchown(link, 12345, 12345)
        with pytest.raises(OSError, match="symbolic link of another user"):
            check_owner(link)


# --- state file


def test_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path) == {}
    write_state(path, {"a": 1})
    write_state(path, {"b": [2]}, sync=False)
    assert read_state(path) == {"b": [2]}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]
    path.write_text("[1]")
    assert read_state(path) == {}
    path.write_text("{")
    assert read_state(path) == {}


def test_damage_is_not_believed_and_a_file_of_an_earlier_release_is(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"highest": 12}')
    assert read_state(path) == {"highest": 12}
    write_state(path, {"highest": 12})
    path.write_text(path.read_text().replace("12", "13"))
    assert read_state(path) == {}


def test_a_folder_has_a_file_for_each_document(tmp_path: Path) -> None:
    state = FolderState(tmp_path)
    assert state.read("histories") == {}
    state.write("histories", {"a": 1})
    assert state.read("histories") == read_state(tmp_path / "histories.json") == {"a": 1}
    assert str(state) == str(tmp_path)


# --- A ready file counts only while the very process that wrote it lives


ME = ReadyFile(os.getpid(), process_started(os.getpid()) or 0, "127.0.0.1:1", "127.0.0.1:2", "0.1", "abc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = ready_path(tmp_path, "shop", "main", "db1")
    place.parent.mkdir(parents=True)
    return place


def test_it_comes_back_and_can_be_read_by_others(path: Path) -> None:
    write_ready(path, ME)
    assert read_ready(path) == ME
    assert path.stat().st_mode & 0o777 == 0o644
    assert [found.name for found in path.parent.iterdir()] == ["publisher.json"], "nothing half-made stays"
    remove_ready(path)
    assert read_ready(path) is None
    remove_ready(path)  # twice does no harm


def test_a_number_that_was_used_again_is_not_the_process(path: Path) -> None:
    write_ready(path, ReadyFile(ME.pid, ME.started - 1, "", "", "", ""))
    assert read_ready(path) is None


def test_the_file_of_a_dead_process_does_not_count(path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = present(process_started(process.pid))
    write_ready(path, ReadyFile(process.pid, started, "", "", "", ""))
    assert read_ready(path) is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
    assert process_started(process.pid) is None, "a zombie serves nobody"
    assert read_ready(path) is None
    process.communicate()
    assert process_started(process.pid) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "\udcff", '{"pid": 1}', json.dumps(dict.fromkeys(ReadyFile.__slots__, "1"))]
)
def test_what_makes_no_sense_is_no_ready_file(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert read_ready(path) is None


def test_a_write_that_fails_leaves_nothing(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError):
        write_ready(path, ME)
    assert list(path.parent.iterdir()) == [path]


# --- folder identity


def test_a_folder_keeps_it_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    identity = identity_of((tmp_path / "one").stat())
    assert identity != identity_of((tmp_path / "other").stat())
    (tmp_path / "one").rename(tmp_path / "moved")
    assert identity_of((tmp_path / "moved").stat()) == identity


def test_a_host_that_does_not_say_which_boot_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOOT_ID", tmp_path / "none")
    assert identity_of(tmp_path.stat()) != identity_of(tmp_path.stat())
