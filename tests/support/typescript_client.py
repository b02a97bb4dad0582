"""The TypeScript client as a test uses it: installed once, built, and run with Node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from scripts.prepare import ROOT

__all__ = ["CLIENT", "client_command", "npm"]

CLIENT: Final = ROOT / "clients" / "typescript"


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client, with its packages and everything built.

    Skips without Node, unless this is CI.
    """
    if missing := [name for name in ("node", "npm") if shutil.which(name) is None]:
        reason = f"{' and '.join(missing)} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("client") / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist", "build")
    shutil.copytree(CLIENT, folder, ignore=ignored)
    npm(folder, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    npm(folder, "run", "build")
    npm(folder, "exec", "--", "tsc", "-p", "tsconfig.test.json")
    return folder


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in the folder. A failure shows what it printed."""
    ran = subprocess.run(["npm", *arguments], cwd=folder, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def client_command(folder: Path) -> list[str]:
    """The command of its client of the conformance kit."""
    return ["node", str(folder / "build" / "conformance" / "client.js")]
