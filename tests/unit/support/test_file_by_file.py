"""Each process of ``pytest -n`` collects the files that it runs, and reports their tests as ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scripts.prepare import ROOT
from tests.support.file_by_file import all_of_a_file_runs

TESTS = {
    "test_one.py": """
import pytest

@pytest.fixture(scope="module")
def shared():
    yield []
    print("torn down")

def test_first(shared):
    shared.append(1)

def test_second(shared):
    assert shared == [1]

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    assert n == 1
""",
    "test_two.py": "def test_alone(): pass\n",
    "test_broken.py": "import nothing_of_this_name\n",
    "test_empty.py": "",
}


def test_every_test_is_reported_by_its_own_name(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    plugins = [
        word for name in ("xdist", "tests.support.one_jvm", "tests.support.file_by_file") for word in ("-p", name)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n", "1", "--dist", "loadfile", "-v"],
        cwd=tmp_path,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "[4 items]" in said, "one for each file"
    for name in ("test_one.py::test_first", "test_one.py::test_second", "test_one.py::test_fails[1]", "test_two.py::"):
        assert f"PASSED {name}" in said
    assert "FAILED test_one.py::test_fails[2]" in said
    assert "ERROR test_broken.py" in said, "a file that cannot be imported fails the run"
    assert "1 failed, 4 passed, 1 error" in said


@pytest.mark.parametrize(
    ("config", "whole"),
    [
        ({}, True),
        ({"args": ["tests/unit"]}, True),
        ({"args": ["tests/unit/test_setup.py::test_x"]}, False),
        ({"option": SimpleNamespace(keyword="rewind", markexpr="")}, False),
        ({"option": SimpleNamespace(keyword="", markexpr="soak")}, False),
        ({"getvalue": lambda _: "load"}, False),
    ],
)
def test_what_is_chosen_by_test_is_collected_in_the_beginning(config: dict[str, Any], whole: bool) -> None:
    plain = {"getvalue": lambda _: "loadfile", "option": SimpleNamespace(keyword="", markexpr=""), "args": ["tests"]}
    assert all_of_a_file_runs(cast("Any", SimpleNamespace(**{**plain, **config}))) is whole
