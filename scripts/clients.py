"""Builds the programs of the libraries for Go and TypeScript, for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT

__all__ = ["GO", "TYPESCRIPT", "built_go", "built_typescript", "go", "npm"]

GO: Final = ROOT / "clients" / "go"
TYPESCRIPT: Final = ROOT / "clients" / "typescript"


def go(*words: str, folder: Path = GO) -> None:
    """Run Go in a folder. A failure shows what it printed."""
    _run(("go", *words), folder, GOFLAGS="-buildvcs=false")


def built_go(name: str, folder: Path) -> Path:
    """Build a program of the library for Go into the folder. Returns where it is."""
    go("build", "-o", str(folder / name), {"conformance": "./cmd/conformance"}.get(name, f"./internal/{name}"))
    return folder / name


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in a folder. A failure shows what it printed."""
    _run(("npm", *arguments), folder)


def built_typescript(folder: Path) -> None:
    """Copy the library for TypeScript to ``folder``, which is made, with its packages and everything built."""
    ignored = shutil.ignore_patterns("node_modules", "dist", "build")
    shutil.copytree(TYPESCRIPT, folder, ignore=ignored)
    npm(folder, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    npm(folder, "run", "build", "--", "--noCheck")  # the next one checks the same files
    npm(folder, "exec", "--", "tsc", "-p", "tsconfig.test.json")


def _run(command: Sequence[str], folder: Path, **environment: str) -> None:
    variables = {**os.environ, **environment}
    ran = subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(command)}:\n{ran.stdout}{ran.stderr}")
