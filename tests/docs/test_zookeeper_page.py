"""docs/zookeeper.md: its commands, in the page's order, close a ZooKeeper; and every message that it explains is
one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.docs.test_configuration_page import FILE
from tests.support.command_line import run
from tests.support.pages import Page

PAGE = Page("docs/zookeeper.md", {})


def test_the_commands_of_the_page(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(FILE.format(zookeeper=zookeeper))
    assert run("config", "apply", "shop.toml", "--yes")[0] == 0
    open_note = "every client that reaches ZooKeeper"
    assert open_note in run("doctor", "-c", "shop.toml")[1]
    said = {}
    for block in PAGE.blocks("sh"):
        for line in block.splitlines():
            word, *words = shlex.split(line)
            if word == "export":
                monkeypatch.setenv(*words[0].split("=", 1))
                continue
            said[words[0], words[1]] = run(*words, *(["--yes"] if "close" in words else []))
    assert said["zookeeper", "credentials"][0] == said["zookeeper", "close"][0] == said["config", "show"][0] == 0, said
    files = {path.name: path.stat().st_mode & 0o777 for path in Path("credentials").iterdir()}
    assert files == dict.fromkeys(("operator", "publisher", "subscriber-cache"), 0o600)
    assert "[applications.cache]" in said["config", "show"][1]
    assert open_note not in said["doctor", "-c"][1]
    assert "it answers" in said["doctor", "-c"][1]

    # The messages of its last table, each from a command.
    Path("eve").write_text("operator:guessed\n")
    for file, command, message in (
        ("", "hosts", "is closed to processes without credentials, and this one has none"),
        ("eve", "hosts", "does not know the credentials in eve"),
        ("nowhere", "hosts", 'coordinator.auth_file = "nowhere": cannot be read'),
        ("credentials/publisher", "config history", "NoAuthError"),
    ):
        monkeypatch.setenv("WORMHOLE_COORDINATOR_AUTH_FILE", file)
        code, _, error = run(*command.split(), "-c", "shop.toml")
        assert (code, message in error, "next: " in error, "Traceback" in error) == (2, True, True, False), error
    for message in ("closed to processes without credentials", "does not know the credentials in", "cannot be read"):
        assert message in PAGE.text
