"""A few tests that failed beside others are run once more, alone; a run of the whole suite leaves longer tests out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scripts import suite
from scripts.prepare import ROOT
from tests.support import extended
from tests.support.extended import EXTENDED

RunSuite = Callable[..., int]

# Fails when it is run for the first time, unless it is called `never`.
UNSTEADY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_it(name):
    seen = Path(__file__).with_name(name)
    first = not seen.exists()
    seen.write_text("")
    assert name == "steady" or (name != "never" and not first)
"""


@pytest.fixture
def run_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSuite:
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "WORKERS", ("-q",))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they would take most of its time
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")

    def run(*names: str) -> int:
        (tmp_path / "test_unsteady.py").write_text(UNSTEADY.format(names=names))
        return suite.main([])

    return run


def test_what_passes_alone_is_named_and_fails_nothing(run_suite: RunSuite, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_suite("steady", "once") == 0
    printed = capfd.readouterr().out
    assert "UNSTEADY, failed beside others and passed alone: test_unsteady.py::test_it[once]" in printed
    assert "suite: passed" in printed


def test_what_fails_alone_too_fails_the_run(run_suite: RunSuite, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_suite("once", "never") == 1
    printed = capfd.readouterr().out
    assert "UNSTEADY" not in printed
    assert "suite: FAILED (pytest exit 1)" in printed


def test_many_failures_are_no_coincidence(run_suite: RunSuite, capfd: pytest.CaptureFixture[str]) -> None:
    names = [f"once{number}" for number in range(suite.MOST_UNSTEADY + 1)]
    assert run_suite(*names) == 1
    assert "again, alone" not in capfd.readouterr().out


def test_what_cannot_be_collected_is_not_run_again(
    tmp_path: Path, run_suite: RunSuite, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_suite("never") == 1
    capfd.readouterr()
    (tmp_path / "test_unsteady.py").write_text("def broken(:\n")
    assert suite.main([]) == 1
    assert "again, alone" not in capfd.readouterr().out


def test_a_tree_without_a_record_has_no_failed_tests(tmp_path: Path) -> None:
    assert suite.failed_tests(tmp_path) == []


def test_what_is_left_out_exists_once() -> None:
    assert len(set(EXTENDED)) == len(EXTENDED) > 40
    for entry in EXTENDED:
        file, _, test = entry.partition("::")
        assert (ROOT / file).is_file(), entry
        assert f"def {test}(" in (ROOT / file).read_text() or not test, entry
        assert not test or file not in EXTENDED


def test_only_a_run_of_the_whole_suite_leaves_it_out(request: pytest.FixtureRequest) -> None:
    def config(*arguments: str) -> pytest.Config:
        return cast(pytest.Config, SimpleNamespace(args=[*arguments], getini=request.config.getini))

    file = next(entry for entry in EXTENDED if "::" not in entry)
    whole = config("tests")
    assert extended.pytest_ignore_collect(ROOT / file, whole) is True
    assert extended.pytest_ignore_collect(ROOT / "tests/unit/scripts/test_suite.py", whole) is None
    for named in (config(file), config("tests/unit"), config("tests", "tests/unit")):
        assert extended.pytest_ignore_collect(ROOT / file, named) is None
        assert extended.pytest_report_header(named) is None
    assert "make extended" in str(extended.pytest_report_header(whole))
