"""docs/monitor.md: commands that can be typed so, and a file that is right."""

from __future__ import annotations

import re

from tests.support.command_line import can_be_typed
from tests.support.pages import Page
from wormhole.config import parse

PAGE = Page("docs/monitor.md", {})


def test_its_commands_can_be_typed_so() -> None:
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    lines += [line for line in re.findall(r"`(wormholectl [^`]*)`", PAGE.text) if "HOST" not in line]
    assert len(lines) >= 4
    for line in lines:
        can_be_typed(line)


def test_the_file_of_a_host_is_right() -> None:
    [text] = PAGE.blocks("toml")
    assert parse(text, "docs/monitor.md").monitor.host_name == "db1.internal"
