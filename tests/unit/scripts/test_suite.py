"""A few tests that failed beside others are run once more, alone; a run of the whole suite leaves longer tests out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scripts import suite
from scripts.prepare import ROOT
from tests.support import extended
from tests.support.extended import EXTENDED


@pytest.mark.parametrize(
    ("failed", "alone", "status", "said"),
    [
        (1, 0, 0, "UNSTEADY, failed beside others and passed alone: test_0"),
        (suite.MOST_UNSTEADY, 1, 1, "again, alone: test_0, test_1, test_2"),
        (suite.MOST_UNSTEADY + 1, 0, 1, ""),  # no coincidence
        (0, 0, 1, ""),  # what cannot be collected leaves a record of no test
    ],
)
def test_a_few_that_failed_are_run_again_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: int, alone: int, status: int, said: str
) -> None:
    assert suite.failed_tests(tmp_path) == []
    record = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({f"test_{number}": True for number in range(failed)}))
    asked: list[Sequence[str]] = []

    def run(names: Sequence[str]) -> int:
        asked.append(names)
        return alone

    assert suite.run_again(tmp_path, run) == status
    printed = capsys.readouterr().out
    assert said in printed
    assert ("UNSTEADY" in printed) is (status == 0)
    assert len(asked) == bool(said)


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
