"""The commands of docs/configuration.md, in the page's order, against a ZooKeeper."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.support.command_line import run
from tests.support.pages import Page

FILE = """version = 1
[coordinator]
zookeeper = "{zookeeper}"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop"
[applications.cache]
dataset = "shop"
start = "latest"
"""


def commands() -> list[list[str]]:
    (block,) = Page("docs/configuration.md", {}).blocks("sh")
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def test_the_commands_of_the_page(zookeeper: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(zookeeper=zookeeper))
    said = {}
    for command in commands():
        given = [str(file) if word == "shop.toml" else word for word in command]
        said[command[1]] = run(*given, *(["--yes"] if "apply" in command else []))
    assert {verb: code for verb, (code, _, _) in said.items()} == {
        "check": 0, "diff": 1, "apply": 0, "show": 0, "history": 0,
    }  # fmt: skip
    assert said["diff"][1].splitlines() == said["apply"][1].splitlines()[:-1]
    assert "[applications.cache]" in said["show"][1]
    assert "config apply  datasets.shop, applications.cache" in said["history"][1]
