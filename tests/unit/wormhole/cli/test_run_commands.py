from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run
from wormhole.cli import operate


def test_the_publisher_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(operate, "run_publisher", lambda *arguments: ran.extend(arguments))
    assert run("publisher", "run", "-c", "shop.toml", "--log", "a/b/c", "--log-level", "debug") == (0, "", "")
    assert ran == [Path("shop.toml"), "a/b/c", "debug"]
