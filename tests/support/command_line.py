"""``wormholectl`` within a test: one call, its exit code and what it printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.testing import CliRunner

from wormholectl.app import app

_COMMAND: Final[Any] = typer.main.get_command(app)


def run(*arguments: str, answer: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error. ``answer``: what is typed; the command sees no terminal."""
    result = CliRunner().invoke(app, list(arguments), input=answer)
    return result.exit_code, result.stdout, result.stderr


def inside(command: Any) -> Mapping[str, Any]:
    """The commands of a group by their names, each with its options."""
    return {name: getattr(one, "built", one) for name, one in getattr(command, "commands", {}).items()}


def can_be_typed(line: str) -> None:
    """Fails where a command, an option or a value of ``line``, which begins with the program, is none."""
    command, words = _COMMAND, shlex.split(line, comments=True)[1:]
    while True:
        context = command.make_context("wormholectl", list(words), ignore_unknown_options=False)
        rest = context._protected_args + context.args  # what is left for the verb
        inner = inside(context.command)
        if not inner or not rest:
            assert not rest, line
            return
        command, words = inner[rest[0]], rest[1:]
