"""`make lock`: writes ``requirements.lock`` from pyproject.toml.

Versions stay unless ``--upgrade`` or ``--upgrade-package NAME`` is given.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.prepare import LOCK, ROOT, UV, registry_environment

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Resolve all extras for every Python and platform at once; returns uv's exit status."""
    command: list[str | Path] = [
        UV,
        "pip",
        "compile",
        "--quiet",
        "--all-extras",
        "--universal",
        "--generate-hashes",
        "--no-annotate",
    ]
    to: list[str | Path] = ["--custom-compile-command", "make lock", "--output-file", LOCK, ROOT / "pyproject.toml"]
    return subprocess.run([*command, *arguments, *to], check=False, env=registry_environment()).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
