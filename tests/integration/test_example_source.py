"""docs/write-a-source.md: the example is a package of its own, which the product reads a file with and which passes
the contract suite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from scripts.prepare import ROOT, UV

EXAMPLE = ROOT / "examples" / "jsonlines_source"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment beside ours, which sees what ours holds, with the example's wheel installed."""
    folder = tmp_path_factory.mktemp("jsonlines")
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    offline = ["--offline", "--quiet", "--python", sys.executable]
    build: list[str | Path] = [UV, "build", "--wheel", *offline, "--no-build-isolation"]
    subprocess.run([*build, "--out-dir", folder / "wheels", source], check=True)
    venv.create(folder / "venv")
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    ours = f"{ROOT}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site / "ours.pth").write_text(ours)
    [wheel] = (folder / "wheels").glob("*.whl")
    subprocess.run([UV, "pip", "install", *offline, "--no-deps", "--target", site, wheel], check=True)
    return folder / "venv"


def run(environment: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(
        [environment / "bin" / "python", "-m", *arguments],
        cwd=environment,
        env={**clean, **variables},
        capture_output=True,
        text=True,
    )


def test_a_file_is_tailed(environment: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    changes = [["put", "users", "7", "Ada"], ["delete", "users", "8"]]
    lines = [{"file": 1, "before": 0}, {"seq": 1, "at_us": 1_700_000_000_000_000, "changes": changes}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = run(environment, "wormholectl", "tail", f"jsonlines://{path}", "--from", "earliest", "--no-follow", "--json")
    assert done.returncode == 0, done.stderr
    assert [(u["op"], u["table"]) for u in map(json.loads, done.stdout.splitlines())] == [
        ("upsert", "users"),
        ("delete", "users"),
    ]
    assert run(environment, "wormholectl", "doctor", f"jsonlines://{path}").returncode == 0


def contract(environment: Path, folder: Path, **variables: str) -> tuple[int, str]:
    """Exit code and output of the example's own tests, run outside of its folder and of ours."""
    tests = shutil.copytree(EXAMPLE / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    done = run(environment, "pytest", "-q", "-x", "--rootdir", tests, "-p", "no:cacheprovider", tests, **variables)
    return done.returncode, done.stdout + done.stderr


def test_it_passes_the_contract(environment: Path, tmp_path: Path) -> None:
    code, output = contract(environment, tmp_path)
    assert code == 0, output
    assert "failed" not in output
    assert " passed" in output


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "        while self._change < len(line.changes):\n",
            "        while self._change < min(len(line.changes), 3):\n",
            "an update is missing, comes twice, or is out of commit order",
        ),
        (
            "        return JsonLinesReader(self, marker)\n\n    def shards",
            "        return JsonLinesReader(self, self.earliest())\n\n    def shards",
            "where the one before ended",
        ),
        (
            "            if not known or known.marker != marker:\n",
            "            if False:\n",
            "DID NOT RAISE",
        ),
    ],
    ids=["loses an update", "resumes at the beginning", "compares no anchor"],
)
def test_a_broken_copy_fails_it(environment: Path, tmp_path: Path, right: str, wrong: str, message: str) -> None:
    package = shutil.copytree(EXAMPLE / "wormhole_jsonlines", tmp_path / "broken" / "wormhole_jsonlines")
    code = (package / "source.py").read_text()
    assert code.count(right) == 1
    (package / "source.py").write_text(code.replace(right, wrong))
    exit_code, output = contract(environment, tmp_path, PYTHONPATH=str(tmp_path / "broken"))
    assert exit_code == 1, output
    assert message in output
