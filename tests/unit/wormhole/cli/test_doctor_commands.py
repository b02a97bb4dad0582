from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run
from wormhole.cli import examine


def test_the_exit_code_is_the_examinations(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def found(*arguments: object) -> int:
        asked.extend(arguments)
        return 1

    monkeypatch.setattr(examine, "examine", found)
    assert run("doctor", "rocksdb:///store", "--json", "--state-dir", "/state") == (1, "", "")
    assert asked == ["rocksdb:///store", Path("/state"), True, None]
