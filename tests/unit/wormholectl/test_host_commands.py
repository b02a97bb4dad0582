from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run
from wormholectl import hosts
from wormholectl.discovery import Where


def test_what_is_asked_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def show(*arguments: Any) -> int:
        asked.append(arguments)
        return 1

    monkeypatch.setattr(hosts, "show", show)
    monkeypatch.setattr(hosts, "drain", lambda *arguments: asked.append(arguments))
    assert run("hosts", "-c", "shop.toml", "--json")[0] == 1
    assert run("drain", "db-7", "--undo", "--yes", "-c", "shop.toml")[0] == 0
    assert asked == [(Where("", "shop.toml"), True), (Where("", "shop.toml"), "db-7", True, True, False)]


def test_a_coordinator_is_needed(tmp_path: Path) -> None:
    code, _, err = run("hosts", "-p", "127.0.0.1:1")
    assert (code, "needs a coordinator" in err) == (2, True)
