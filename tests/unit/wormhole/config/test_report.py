"""The report: one problem in one line, several in a list, no password in either."""

from __future__ import annotations

import pytest

from wormhole.config.report import ConfigReport
from wormhole.model.errors import ConfigError
from wormhole.model.suggestion import suggestion


def test_nothing_wrong_raises_nothing() -> None:
    ConfigReport("x.toml").raise_if_any()


def test_one_problem_is_in_the_first_line() -> None:
    report = ConfigReport("x.toml")
    report.add(("a", "b", 0), "must be more", True)
    with pytest.raises(ConfigError, match=r"^x\.toml: a\.b\.0 = true: must be more \[config-invalid\]$"):
        report.raise_if_any()


def test_passwords_and_long_values_are_cut() -> None:
    report = ConfigReport("x.toml")
    report.add(("source",), "no", "mysql://user:secret@db/x")
    report.add((), "no", "x" * 1000)
    with pytest.raises(ConfigError) as caught:
        report.raise_if_any()
    text = str(caught.value)
    assert "secret" not in text
    assert 'source = "mysql://user:***@db/x": no' in text
    assert len(text) < 250


def test_of_many_problems_the_first_are_listed() -> None:
    report = ConfigReport("x.json")
    for number in range(100_000):
        report.add(("a" * 1000, str(number)), "unknown key")
    with pytest.raises(ConfigError, match=r"^x\.json: more than 100 problems, of which these are the first") as told:
        report.raise_if_any()
    assert len(str(told.value)) < 100 * 150


def test_suggestions() -> None:
    assert suggestion("strat", ["start", "where"]) == '; did you mean "start"?'
    assert suggestion("zzz", ["start", "where"]) == "; known are start, where"
    assert suggestion("zzz", []) == ""
