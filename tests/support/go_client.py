"""The Go client as a test uses it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT

__all__ = ["CLIENT", "go", "go_program"]

CLIENT: Final = ROOT / "clients" / "go"


def go(*words: str, folder: Path = CLIENT) -> None:
    """Run Go in a folder. A failure shows what it printed."""
    environment = {**os.environ, "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(["go", *words], cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"go {' '.join(words)}:\n{done.stdout}{done.stderr}"


def go_program(name: str, folder: Path) -> Path:
    """Build a program of the client into the folder."""
    go("build", "-o", str(folder / name), {"conformance": "./cmd/conformance"}.get(name, f"./internal/{name}"))
    return folder / name
