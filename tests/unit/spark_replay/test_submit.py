from __future__ import annotations

import sys

import pytest

from spark_replay import submit


def test_the_arguments_are_those_of_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["submit.py", "--resume", "r", "--cancel", "r"])
    with pytest.raises(SystemExit) as ended:
        submit.main()
    assert ended.value.code == 2
    assert "exclude each other" in capsys.readouterr().err
