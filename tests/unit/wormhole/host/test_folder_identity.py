from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.host import folder_identity as module
from wormhole.host.folder_identity import identity_of


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
