"""``wormholectl snapshot`` and ``history``: what they take, before anything is started."""

from __future__ import annotations

import pytest

from tests.support.command_line import run
from wormholectl import tabling


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_they_hand_on_what_was_given(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(tabling, command, lambda *given: seen.append(given))
    options = ["-t", "a", "-t", "b", "--until", "2h", "--type", "a:x=text", "--field", "b:y=int", "--master", "local"]
    options += ["--archive", "s3://b/a", "--archive", "/srv/archive"]
    code, _, err = run(command, "orders", "--to", "x", "-c", "shop.toml", *options, "--json")
    assert code == 0, err
    start = "earliest" if command == "history" else ""
    archives = ("s3://b/a", "/srv/archive")
    asking = tabling.Asking("x", "orders", archives, ("a", "b"), start, "2h", ("a:x=text",), ("b:y=int",), "local")
    assert seen == [("shop.toml", asking, True)]


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_a_folder_must_be_named(command: str) -> None:
    code, _, err = run(command, "orders")
    assert code == 2
    assert "--to" in err
