"""The plugin in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


MODULES = {
    "a_source": TESTS + OWN,
    "no_harness": TESTS,
    "a_source_that_loses_everything": TESTS
    + OWN.replace("    def close", "    def commit(self, changes): pass\n    def close"),
}


def test_modules_of_another_package(tmp_path: Path) -> None:
    for name, code in MODULES.items():
        (tmp_path / f"test_{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "wormhole.ports.testing.plugin", "-k", "everything_once"],
        cwd=tmp_path,
        # No other plugin: the suite needs none, and ours must not be loaded twice where it is installed.
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    for words in (
        "closed it",
        "define a fixture new_harness",
        "docs/write-a-source.md",
        "an update is missing, comes twice, or is out of commit order",
        "first extra item: ('upsert', 'a', b'0000')",
        "FAILED test_a_source_that_loses_everything.py",
        "ERROR test_no_harness.py",
        "1 failed, 1 passed, ",
        "1 error in ",
    ):
        assert words in done.stdout, done.stdout + done.stderr
