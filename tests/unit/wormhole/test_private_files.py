from __future__ import annotations

import os
from pathlib import Path

from wormhole.private_files import keep_private


def test_what_is_created_from_then_on_is_its_users_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_private()
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_text("secret")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "file")] == [0o700, 0o600]
