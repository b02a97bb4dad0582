"""``wormholectl`` within a test: one call, its exit code and what it printed."""

from __future__ import annotations

import shlex
from typing import Any, Final

import typer
from typer.testing import CliRunner

from wormholectl.app import app

_COMMAND: Final[Any] = typer.main.get_command(app)


def run(*arguments: str, answer: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error. ``answer``: what is typed; the command sees no terminal."""
    result = CliRunner().invoke(app, list(arguments), input=answer)
    return result.exit_code, result.stdout, result.stderr


def can_be_typed(line: str) -> None:
    """Fails where a command, an option or a value of ``line``, which begins with the program, is none."""
    command, words = _COMMAND, shlex.split(line)[1:]
    while getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("wormholectl", words)
