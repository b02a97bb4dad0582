"""Checks that mypy and pyright accept the programs of the documents and the examples, in strict mode.

    python -m scripts.programs

A program is a Python snippet that uses the SDK; one whose first line is ``# NAME.py`` can be imported by that name.
The programs of docs/testing.md are left out, because their tests have no annotations. The examples are in mypy's other
run (``make check``), and so are wrong options that both checkers refuse: a comment ``# type: ignore`` that one of them
does not need is an error.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.prepare import ROOT
from scripts.prose import documents
from tests.support.pages import Page

__all__ = ["main", "write"]

_FOLDER = ROOT / "build" / "programs"  # pyproject.toml names it for pyright
_LEFT_OUT = frozenset({ROOT / "docs" / "testing.md"})


def write(folder: Path) -> list[Path]:
    """Put each program into a file of its own in ``folder``, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = []
    for page in documents(ROOT):
        if page in _LEFT_OUT:
            continue
        for number, code in enumerate(Page(str(page.relative_to(ROOT)), {}).blocks("python"), 1):
            if "from subscriber_sdk" in code:
                named = re.match(r"# (\w+\.py)\n", code)
                path = folder / (named[1] if named else f"{page.stem.lower().replace('-', '_')}_{number}.py")
                path.write_text(code)
                written.append(path)
    return written


def main() -> int:
    """Returns 0 when both accept everything."""
    commands = [["mypy", "--strict", "--no-error-summary", *map(str, write(_FOLDER))]]
    if importlib.util.find_spec("pyright") or os.environ.get("CI"):
        commands.append(["pyright"])
    else:
        print("pyright is not installed, so only mypy was asked: make prepare-dev")
    # Its package would look for a newer release of itself in the network.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "MYPYPATH": str(_FOLDER)}
    failed = [
        command[0]
        for command in commands
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False).returncode
    ]
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
