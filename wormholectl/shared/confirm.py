"""Asks the person at the terminal before a change."""

from __future__ import annotations

import sys

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.show.printer import print_text

__all__ = ["confirm"]


def confirm(question: str, yes: bool) -> None:
    """Ask the question unless ``yes`` was given. Returns if the answer is yes. Otherwise the command ends with exit
    code 1.

    Raises :class:`~wormhole.model.errors.UsageError` if standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed: the question cannot be asked, since standard input is no terminal",
            hint="repeat it with --yes if the change is meant",
            code="needs-confirmation",
        )
    print_text(f"{question} [y/N] ", end="", error=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        print_text("nothing was changed", error=True)
        raise typer.Exit(BROKEN)
