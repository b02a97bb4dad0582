"""One process at a time in a folder; who comes second is told whom it met."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.folder_lock import FolderLock
from wormhole.model.errors import ConfigError

HOLDER = """
import sys, pathlib
from monitor.folder_lock import FolderLock
with FolderLock(pathlib.Path(sys.argv[1]), "a monitor"):
    print("held", flush=True)
    input()
"""


def test_it_is_held_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "monitor.lock"
    with FolderLock(path, "a monitor"):
        with pytest.raises(ConfigError, match=f"a monitor runs already in .*process {os.getpid()}"):
            FolderLock(path, "a monitor").__enter__()
    with FolderLock(path, "a monitor"):
        pass


def test_it_goes_with_a_killed_holder(tmp_path: Path) -> None:
    path = tmp_path / "monitor.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match=f"process {holder.pid}"):
        FolderLock(path, "a monitor").__enter__()
    holder.kill()
    holder.communicate()
    with FolderLock(path, "a monitor"):
        pass


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        FolderLock(tmp_path / "file" / "monitor.lock", "a monitor").__enter__()
    assert "state_dir" in str(caught.value.hint)
