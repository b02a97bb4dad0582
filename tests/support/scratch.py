"""A copy of this tree without anything compiled, and the suite run inside it.

The mutants use it: a fault is applied to a copy, never to the checkout. A tree without compiled files is what
``WORMHOLE_BUILD_EXT=no`` builds. The copy borrows the checkout's environment: ``PYTHONPATH`` puts the copy before it,
also in the processes that a test starts, and ``tests/conftest.py`` refuses to run when a package comes from elsewhere
all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.prepare import ROOT

# .hypothesis is: in it are a table of Unicode and the constants of each source, which every process would make anew.
_NOT_COPIED = shutil.ignore_patterns(
    ".venv", ".git", "build", "dist", "*.so", "*.egg-info", "__pycache__", ".*_cache", "profile"
)


def make_copy(target: Path) -> Path:
    """Copy the tree to ``target``, which is emptied first; returns ``target``."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(ROOT, target, ignore=_NOT_COPIED, symlinks=True)
    return target


def environment(copy: Path) -> dict[str, str]:
    """The environment in which Python finds the copy's modules, interpreted."""
    return {
        **os.environ,
        "PYTHONPATH": str(copy),
        "WORMHOLE_BUILD_EXT": "no",
        # Empty, it lets Python keep byte code, without which each process that a test starts compiles the tree.
        "PYTHONDONTWRITEBYTECODE": "",
    }


def run_tests(
    copy: Path,
    selection: Sequence[str],
    *,
    timeout: float | None = None,
    quiet: bool = False,
    settings: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run pytest in ``copy`` over ``selection``; returns its exit status and, when ``quiet``, what it printed.

    ``settings``: more variables of the environment. A run that outlives ``timeout`` (seconds) is killed with everything
    it started and counts as status 124.
    """
    command = [sys.executable, "-m", "pytest", *selection]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env={**environment(copy), **(settings or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        start_new_session=quiet,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        if quiet:
            os.killpg(process.pid, 9)
        else:
            process.kill()
        output, _ = process.communicate()
        return 124, output or ""
    return process.returncode, output or ""
