"""``wormholectl`` within a test: one call, its exit code and what it printed."""

from __future__ import annotations

from typer.testing import CliRunner

from wormholectl.app import app


def run(*arguments: str, answer: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error. ``answer``: what is typed; the command sees no terminal."""
    result = CliRunner().invoke(app, list(arguments), input=answer)
    return result.exit_code, result.stdout, result.stderr
