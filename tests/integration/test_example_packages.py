"""docs/write-a-source.md and docs/write-a-sink.md: each example is a package of its own, which the product uses and
which passes its contract suite.
"""

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

EXAMPLES = ROOT / "examples"
SOURCE, SINK = "jsonlines_source", "changelog_sink"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment beside ours, which sees what ours holds, with the examples' wheels installed."""
    folder = tmp_path_factory.mktemp("examples")
    offline = ["--offline", "--quiet", "--python", sys.executable]
    for example in (SOURCE, SINK):
        source = folder / example
        shutil.copytree(EXAMPLES / example, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        build: list[str | Path] = [UV, "build", "--wheel", *offline, "--no-build-isolation"]
        subprocess.run([*build, "--out-dir", folder / "wheels", source], check=True)
    venv.create(folder / "venv")
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    ours = f"{ROOT}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site / "ours.pth").write_text(ours)
    wheels = sorted((folder / "wheels").glob("*.whl"))
    subprocess.run([UV, "pip", "install", *offline, "--no-deps", "--target", site, *wheels], check=True)
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


SHOP = """
version = 1

[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop"

[applications.changes]
dataset = "shop"
start = "latest"
subscribers = {{ one = "127.0.0.1:1" }}

[sinks.changes]
url = "changelog://{folder}/changes.db"
"""


def test_a_sink_is_checked(environment: Path, tmp_path: Path) -> None:
    config = tmp_path / "shop.toml"
    config.write_text(SHOP.format(folder=tmp_path))
    done = run(environment, "wormholectl", "sink", "check", "changes", "-c", config)
    assert (done.returncode, "is there" in done.stdout) == (0, True), done.stderr
    config.write_text(SHOP.format(folder=tmp_path / "missing"))
    assert run(environment, "wormholectl", "sink", "check", "changes", "-c", config).returncode == 3


def contract(environment: Path, example: str, folder: Path, **variables: str) -> tuple[int, str]:
    """Exit code and output of the example's own tests, run outside of its folder and of ours."""
    tests = shutil.copytree(
        EXAMPLES / example / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    done = run(environment, "pytest", "-q", "-x", "--rootdir", tests, "-p", "no:cacheprovider", tests, **variables)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("example", [SOURCE, SINK])
def test_it_passes_the_contract(environment: Path, tmp_path: Path, example: str) -> None:
    code, output = contract(environment, example, tmp_path)
    assert code == 0, output
    assert "failed" not in output
    assert " passed" in output


@pytest.mark.parametrize(
    ("module", "right", "wrong", "message"),
    [
        (
            "jsonlines_source/wormhole_jsonlines/source.py",
            "        while self._change < len(line.changes):\n",
            "        while self._change < min(len(line.changes), 3):\n",
            "an update is missing, comes twice, or is out of commit order",
        ),
        (
            "jsonlines_source/wormhole_jsonlines/source.py",
            "        return JsonLinesReader(self, marker)\n\n    def shards",
            "        return JsonLinesReader(self, self.earliest())\n\n    def shards",
            "where the one before ended",
        ),
        (
            "jsonlines_source/wormhole_jsonlines/source.py",
            "            if not known or known.marker != marker:\n",
            "            if False:\n",
            "DID NOT RAISE",
        ),
        (
            "changelog_sink/wormhole_changelog/sink.py",
            "for record in records]",
            "for record in records[:1]]",
            "the records are not those of the log, in its order",
        ),
        (
            "changelog_sink/wormhole_changelog/sink.py",
            "> _LONGEST:",
            "> 9 * _LONGEST:",
            "assert [] == ['test:2:1']",
        ),
    ],
    ids=["loses an update", "resumes at the beginning", "compares no anchor", "loses a record", "parks nothing"],
)
def test_a_broken_copy_fails_it(
    environment: Path, tmp_path: Path, module: str, right: str, wrong: str, message: str
) -> None:
    example, package, _ = module.split("/")
    broken = tmp_path / "broken"
    shutil.copytree(EXAMPLES / example / package, broken / package)
    code = (EXAMPLES / module).read_text()
    assert code.count(right) == 1
    (broken / module.removeprefix(f"{example}/")).write_text(code.replace(right, wrong))
    exit_code, output = contract(environment, example, tmp_path, PYTHONPATH=str(broken))
    assert exit_code == 1, output
    assert message in output
