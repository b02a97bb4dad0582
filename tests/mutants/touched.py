"""The faults in what changed since a commit, as many as a push can wait for.

A fault counts where its file or one of its tests changed. More than :data:`MOST` are drawn by the commit, so that
another run of the same commit draws the same ones.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.runner import KILLED, Fault, FaultError, Result, Runner, run_all, run_pytest

__all__ = ["MOST", "NoBaseError", "changed_files", "draw", "run_within"]

MOST: Final = 8
_SECONDS: Final = 90.0
"""After so many no further fault is begun."""
_LONGEST_S: Final = 30.0
"""For the tests of one fault, once without it and once with it."""


class NoBaseError(Exception):
    """There is no commit to compare with."""


def _git(root: Path, *arguments: str) -> str:
    """The output of a command of git. Raises `NoBaseError` where it fails."""
    try:
        ended = subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, text=True)
    except OSError as error:
        raise NoBaseError(f"git does not run: {error}") from error
    if ended.returncode:
        raise NoBaseError(ended.stderr.strip() or f"git {arguments[0]}: exit {ended.returncode}")
    return ended.stdout.strip()


def changed_files(root: Path, base: str = "") -> tuple[str, str, set[str]]:
    """The commit, the one that it is compared with, and the files that differ from there to the working tree.

    Without ``base`` that is the place where the remote's ``main`` was left, or the last commit but one.
    """
    commit = _git(root, "rev-parse", "HEAD")
    if not base:
        try:
            base = _git(root, "merge-base", "HEAD", "origin/main")
        except NoBaseError:
            base = commit
        if base == commit:
            base = _git(root, "rev-parse", "--verify", "HEAD~1^{commit}")
    return commit, base, set(_git(root, "diff", "--name-only", base).splitlines())


def draw(faults: Sequence[Fault], files: set[str], commit: str) -> tuple[list[Fault], int]:
    """At most :data:`MOST` of the faults that ``files`` touch, and how many these are."""
    touched = [
        fault for fault in faults if files & {fault.file, *(selected.partition("::")[0] for selected in fault.tests)}
    ]
    return random.Random(commit).sample(touched, min(MOST, len(touched))), len(touched)


def _run_briefly(copy: Path, selection: Sequence[str]) -> tuple[int, str]:
    return run_pytest(copy, selection, timeout=_LONGEST_S)


def run_within(
    faults: Sequence[Fault],
    copy: Path,
    *,
    run: Runner = _run_briefly,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Run one fault after the other until the time is over. A fault whose sound tests take too long is left out."""
    results: list[Result] = []
    end = clock() + _SECONDS
    for number, fault in enumerate(faults):
        if clock() > end:
            say(f"left out after {_SECONDS:.0f} s: {', '.join(late.name for late in faults[number:])}")
            break
        try:
            results += run_all([fault], copy, run=run, say=say)
        except FaultError as error:
            if error.status != KILLED:
                raise
            say(f"left out: {fault.name}, whose tests take longer than {_LONGEST_S:.0f} s")
    return results
