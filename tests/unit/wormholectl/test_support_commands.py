from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run
from wormholectl import support_dump
from wormholectl.discovery import Where


def test_what_is_asked_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(support_dump, "dump", lambda *arguments: asked.append(arguments))
    assert run("support-dump", "-c", "shop.toml", "-o", "x.tar.gz")[0] == 0
    assert run("support-dump", "-p", "h:7", "--json")[0] == 0
    assert asked == [(Where("", "shop.toml"), Path("x.tar.gz"), False), (Where("h:7"), None, True)]
