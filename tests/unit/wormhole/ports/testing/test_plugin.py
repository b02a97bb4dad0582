"""The plugin in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
TESTS = """
from wormhole.ports.testing.contract import LogSourceContract

class TestContract(LogSourceContract):
    pass
"""
OWN = """
import pytest
from tests.support.log_source_harness import MemoryHarness

class Harness(MemoryHarness):
    def close(self):
        print("closed it")
        super().close()

@pytest.fixture
def new_harness():
    return Harness
"""


@pytest.mark.parametrize(
    ("code", "result", "words"),
    [
        (TESTS + OWN, 0, ["closed it", "1 passed"]),
        (TESTS, 1, ["define a fixture new_harness", "docs/write-a-source.md"]),
        (
            TESTS + OWN.replace("    def close", "    def commit(self, changes): pass\n    def close"),
            1,
            [
                "an update is missing, comes twice, or is out of commit order",
                "first extra item: ('upsert', 'a', b'0000')",
            ],
        ),
    ],
    ids=["a source", "no harness", "a source that loses everything"],
)
def test_a_module_of_another_package(tmp_path: Path, code: str, result: int, words: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "wormhole.ports.testing.plugin", "-k", "everything_once"],
        cwd=tmp_path,
        # No other plugin: the suite needs none, and ours must not be loaded twice where it is installed.
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == result, done.stdout + done.stderr
    for word in words:
        assert word in done.stdout
