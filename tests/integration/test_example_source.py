"""docs/write-a-source.md: the example is installed as a package of its own, and the product reads a file with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "jsonlines_source"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
ENTRY = [sys.executable, "-m", "wormholectl"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """In which the package is installed."""
    folder = tmp_path_factory.mktemp("jsonlines")
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run(
        [*PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder / "site", source],
        check=True,
    )
    return {**os.environ, "PYTHONPATH": str(folder / "site")}


def test_a_file_is_tailed(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    changes = [["put", "users", "7", "Ada"], ["delete", "users", "8"]]
    lines = [{"file": 1, "before": 0}, {"seq": 1, "at_us": 1_700_000_000_000_000, "changes": changes}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = subprocess.run(
        [*ENTRY, "tail", f"jsonlines://{path}", "--from", "earliest", "--no-follow", "--json"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [(u["op"], u["table"]) for u in map(json.loads, done.stdout.splitlines())] == [
        ("upsert", "users"),
        ("delete", "users"),
    ]
    assert subprocess.run([*ENTRY, "doctor", f"jsonlines://{path}"], env=environment).returncode == 0
