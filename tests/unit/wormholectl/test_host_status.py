"""The hosts of an installation."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.folder_lock import FolderLock
from wormholectl.host_status import lock_holder


def test_who_holds_a_lock_is_asked_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with FolderLock(path, "this"):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None
