from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run
from wormholectl import init_project


def test_what_was_said_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(init_project, "initialise", lambda *arguments: asked.extend(arguments))
    assert run("init", "rocksdb:///store") == (0, "", "")
    assert asked == ["rocksdb:///store", Path(), "cache", None, False]
    asked.clear()
    run("init", "mysql://u@h", "--dir", "d", "--application", "a", "--password-file", "p", "--force")
    assert asked == ["mysql://u@h", Path("d"), "a", Path("p"), True]
