from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from wormhole.model.errors import (
    CoordinationLost,
    DecodeError,
    FilterError,
    SourceUnavailable,
    UsageError,
    WormholeError,
)
from wormholectl.exit_codes import BROKEN, UNREACHABLE, WRONG
from wormholectl.shared.errors import DEBUG, GuardedGroup, exit_code, message, needs


def app_raising(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=GuardedGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        """Makes it a group."""

    @app.command()
    def fail() -> None:
        """Raise."""
        print("before")
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FilterError("no", hint="do this"), WRONG, "error [filter-invalid]: no\n  next: do this\n"),
        (UsageError("no", hint="GRANT x TO y;"), WRONG, "error [wrong-request]: no\n  next:\n    GRANT x TO y;\n"),
        (
            SourceUnavailable("gone", position="1/2/3"),
            UNREACHABLE,
            "error [source-unavailable]: gone (position 1/2/3)\n",
        ),
        (CoordinationLost("away"), UNREACHABLE, "error [coordination-lost]: away\n"),
        (DecodeError("bad"), BROKEN, "error [log-undecodable]: bad\n"),
        (ValueError("oops"), BROKEN, "error [internal-error]: unexpected ValueError: oops\n"),
        (RuntimeError("oops"), BROKEN, "error [internal-error]: unexpected RuntimeError: oops\n"),
        (BrokenPipeError("oops"), BROKEN, "error [internal-error]: unexpected BrokenPipeError: oops\n"),
        (ConnectionResetError("oops"), BROKEN, "error [internal-error]: unexpected ConnectionResetError: oops\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(7), 7, ""),
    ],
)
def test_every_error_is_one_message_and_one_exit_code(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    result = CliRunner().invoke(app_raising(error), ["fail"])
    assert (result.exit_code, result.stdout) == (code, "before\n")
    assert result.stderr.startswith(says)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("read", "code"), [(True, BROKEN), (False, 0)])
def test_a_broken_pipe_is_no_error_only_when_nobody_reads_stdout(
    read: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another connection breaks with the same error."""
    end, stdout = os.pipe()
    with open(end, "rb") as reader, open(stdout, "w") as writer:
        if not read:
            reader.close()
        monkeypatch.setattr(sys, "stdout", writer)
        with pytest.raises(SystemExit) as ended:
            app_raising(BrokenPipeError("oops"))(["fail"])
        monkeypatch.undo()
    assert ended.value.code == code
    assert ("BrokenPipeError: oops" in capsys.readouterr().err) == read


def test_the_place_of_an_error_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG, "1")
    result = CliRunner().invoke(app_raising(UsageError("no")), ["fail"])
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error [wrong-request]: no\n")


def test_wrong_options_are_the_callers_move() -> None:
    result = CliRunner().invoke(app_raising(ValueError()), ["fail", "--colour"])
    assert result.exit_code == WRONG
    assert "--colour" in result.stderr


def test_the_hint_stays_in_the_error() -> None:
    error = WormholeError("no", hint="do this")
    assert message(error) == "error [failed]: no\n  next: do this"
    assert error.hint == "do this"
    assert exit_code(error) == BROKEN


def test_what_is_not_installed_is_named_with_its_extra() -> None:
    with (
        pytest.raises(UsageError, match=r"wormhole_no_such_part.*wormhole-pubsub\[publisher\]"),
        needs("publisher"),
    ):
        importlib.import_module("wormhole_no_such_part")


@pytest.mark.parametrize("arguments", [["--help"], ["flows", "--help"], ["--version"]], ids=" ".join)
def test_output_of_the_options_that_nobody_takes(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "wormholectl", *arguments]
    end, output = os.pipe()
    os.close(end)
    unread = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    os.close(output)
    assert (unread.returncode, unread.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        unwritten = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert unwritten.returncode == BROKEN
    assert unwritten.stderr.startswith(
        "error [file-unwritable]: nothing more can be written: No space left on device\n  next: make room"
    )
    assert "Traceback" not in unwritten.stderr
