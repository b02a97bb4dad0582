"""docs/monitor.md and deploy/: commands that can be typed so, a file that is right, units that systemd takes."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S
from tests.support.pages import Page
from wormhole.config import parse
from wormholectl.app import app

PAGE = Page("docs/monitor.md", {})
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
COMMAND: Any = typer.main.get_command(app)


def can_be_typed(line: str) -> None:
    command, words = COMMAND, shlex.split(line)[1:]
    while getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("wormholectl", words)


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(path)
    return found


def test_its_commands_can_be_typed_so() -> None:
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    lines += [line for line in re.findall(r"`(wormholectl [^`]*)`", PAGE.text) if "HOST" not in line]
    assert len(lines) >= 4
    for line in lines:
        can_be_typed(line)


def test_the_file_of_a_host_is_right() -> None:
    [text] = PAGE.blocks("toml")
    assert parse(text, "docs/monitor.md").monitor.host_name == "db1.internal"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_what_there_is(path: Path) -> None:
    service = unit(path)["Service"]
    started = service["ExecStart"].removeprefix("/usr/bin/env ")
    assert started.startswith("wormholectl ")
    can_be_typed(started.replace("%i", "shop"))
    leaves = service["KillMode"] == "process"
    assert leaves == ("--leave-running" in started), (
        "who leaves the publishers must not have them killed, nor the other way round"
    )


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        return  # not where nothing is run by systemd; the test above holds the rest
    names = [str(path).replace("@.", "@shop.") for path in UNITS]
    for path, name in zip(UNITS, names, strict=True):
        shutil.copy(path, tmp_path / Path(name).name)
    copies = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([program, "verify", "--man=no", *copies], capture_output=True, text=True, timeout=PATIENCE_S)
    about_ours = [line for line in done.stderr.splitlines() if "wormhole" in line]
    assert about_ours == []


def test_the_container_runs_what_there_is() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text()
    [entry] = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    [arguments] = re.findall(r"^CMD (.+)$", text, re.MULTILINE)
    can_be_typed(" ".join([*eval(entry), *eval(arguments)]))
    [extras] = re.findall(r'"/src\[([\w,]+)\]"', text)
    known = re.findall(
        r"^(\w+) = \[$", (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2], re.MULTILINE
    )
    assert set(extras.split(",")) <= set(known)
