from __future__ import annotations

import io
import sys

import pytest
import typer

from wormhole.model.errors import UsageError
from wormholectl.shared.confirm import confirm


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "goes_on"), [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_only_a_yes_goes_on(
    typed: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    if goes_on:
        confirm("Really?", False)
    else:
        with pytest.raises(typer.Exit) as end:
            confirm("Really?", False)
        assert end.value.exit_code == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Really? [y/N] " + ("" if goes_on else "nothing was changed\n"))


def test_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=r"nothing was changed.*no terminal.*--yes"):
        confirm("Really?", False)
    confirm("Really?", True)
