"""The TypeScript client as a test uses it: installed once, built, and run with Node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scripts.clients import built_typescript

__all__ = ["client_command"]


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
    built_typescript(folder)
    return folder


def client_command(folder: Path) -> list[str]:
    """The command of its client of the conformance kit."""
    return ["node", str(folder / "build" / "conformance" / "client.js")]
