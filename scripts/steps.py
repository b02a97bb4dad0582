"""Shared code of the steps that prepare the checkout: paths, output, and the start of programs.

Standard library only, and readable by an older Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

__all__ = ["ROOT", "VENV", "quietly", "say", "stop"]

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def say(text: str) -> None:
    print(f"prepare: {text}", flush=True)


def stop(text: str) -> NoReturn:
    print(f"prepare: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def quietly(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout without standard input; both its outputs are in ``stdout``."""
    return subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
