"""Turns every error of a command into one message and one exit code."""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

import typer
from typer.core import TyperGroup

from wormhole.model.errors import Retryable, UsageError, WormholeError
from wormhole.model.visible import visible, visible_lines
from wormholectl.exit_codes import BROKEN, UNREACHABLE, WRONG
from wormholectl.show.printer import next_step_lines

__all__ = [
    "DEBUG",
    "GuardedGroup",
    "exit_code",
    "message",
    "needs",
]

DEBUG: Final = "WORMHOLE_DEBUG"

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def exit_code(error: WormholeError) -> int:
    """The exit code that shows who has to act."""
    if isinstance(error, UsageError):
        return WRONG
    return UNREACHABLE if isinstance(error, Retryable) else BROKEN


def message(error: BaseException) -> str:
    """The error as printable text, with its code in brackets and its next step on a separate line."""
    if not isinstance(error, WormholeError):
        what = f"unexpected {type(error).__name__}: {error}"
        error = WormholeError(what, hint=f"report this; {DEBUG}=1 shows where it happened", code="internal-error")
    text = f"error [{error.code}]: {visible_lines(error.text)}"
    return text if error.hint is None else "\n  ".join((text, *map(visible, next_step_lines(error.hint))))


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """A context manager for imports of packages that only ``extra`` installs, or a decorator of an importing function.

    Raises :class:`~wormhole.model.errors.UsageError` with the command that installs a missing package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError.not_installed(error, f"wormhole-pubsub[{extra}]") from error


class GuardedGroup(TyperGroup):
    """The root of the commands. A closed pipe (``| head``) and Ctrl-C are not errors.

    Every exception, except Typer's own, becomes a message and an exit code. This includes exceptions of the options
    before a command.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options; ``--help`` and ``--version`` print here."""
        with _guarded():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _guarded():
            return super().invoke(ctx)


@contextmanager
def _guarded() -> Iterator[None]:
    try:
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # Rich, which prints the help, turns the error into an exit
            raise typer.Exit(0) from None
        raise
    except WormholeError as error:
        _report(error)
        raise typer.Exit(exit_code(error)) from None
    except Exception as error:
        if type(error).__module__.startswith("typer"):  # Exit, Abort, and wrong usage, which Typer shows
            raise
        if isinstance(error, BrokenPipeError) and _nobody_reads(sys.stdout):
            _drop_output()
            raise typer.Exit(0) from None
        if isinstance(error, OSError) and error.errno in _FULL:
            _drop_output()
            error = WormholeError(
                f"nothing more can be written: {error.strerror}",
                hint="make room where the output and the files of the command go",
                code="file-unwritable",
            )
        _report(error)
        raise typer.Exit(BROKEN) from None


def _drop_output() -> None:
    """Discard buffered output, because its reader is gone. Otherwise the interpreter reports an error when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nobody_reads(output: TextIO) -> bool:
    """Whether ``output`` is a pipe or a socket whose reader is gone. Other connections break with the same error."""
    try:
        ends = select.poll()
        ends.register(output.fileno(), 0)
    except OSError:  # the output has no file descriptor
        return False
    return bool(ends.poll(0))


def _report(error: BaseException) -> None:
    if os.environ.get(DEBUG):
        print(visible_lines("".join(traceback.format_exception(error))), file=sys.stderr)  # noqa: T201
    print(message(error), file=sys.stderr)  # noqa: T201
