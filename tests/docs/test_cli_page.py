"""docs/cli.md: it names every command, and every command on it can be typed so. tests/system/test_command_line.py
runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from tests.support.command_line import can_be_typed, inside
from tests.support.pages import Page
from wormholectl.app import app

PAGE = Page("docs/cli.md", {})
ROOT: Any = typer.main.get_command(app)


def commands(of: Any, name: str = "") -> Iterator[str]:
    """Every command that does something."""
    inner = inside(of)
    if name and (not inner or of.invoke_without_command):
        yield name
    for word, command in inner.items():
        yield from commands(command, f"{name} {word}".strip())


def typed() -> list[str]:
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("wormholectl ")]


def test_every_command_on_it_can_be_typed_so() -> None:
    for line in typed():
        can_be_typed(line)


def test_it_names_every_command() -> None:
    text = re.sub(r"\[([^\]]*)\](?=`)", r"\1", PAGE.text).replace("\\|", "|")
    for name in commands(ROOT):
        *nouns, verb = name.split()
        noun = " ".join(nouns)
        said = re.search(rf"`(?:wormholectl )?{re.escape(name)}\b", text) or re.search(
            rf"{re.escape(noun)} \[?(?:[\w-]+\|)*{re.escape(verb)}\b", text
        )
        assert said, f"docs/cli.md does not name `{name}`"
