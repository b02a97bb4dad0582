from __future__ import annotations

import os
from pathlib import Path

import pytest

from wormhole.host.private_files import check_owner, keep_private, private_folder, private_opener


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
