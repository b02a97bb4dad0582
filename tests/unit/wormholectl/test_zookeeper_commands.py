from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run
from wormholectl import zookeeper_access


def test_what_is_asked_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(zookeeper_access, "credentials", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(zookeeper_access, "close", lambda *arguments: asked.append(arguments))
    assert run("zookeeper", "credentials", "--to", "folder", "-c", "zk1:2181/root")[0] == 0
    assert run("zookeeper", "close", "-c", "zk1:2181/root", "--yes")[0] == 0
    monkeypatch.setenv("WORMHOLE_COORDINATOR_AUTH_FILE", "operator")
    assert run("zookeeper", "close", "-c", "zk1:2181/root")[0] == 0
    assert asked == [
        ("zk1:2181/root", Path("folder")),
        ("zk1:2181/root", None, True),
        ("zk1:2181/root", Path("operator"), False),
    ]
