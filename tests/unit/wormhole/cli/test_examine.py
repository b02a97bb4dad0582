from __future__ import annotations

import json
from pathlib import Path

import pytest

from publisher.doctor import Report, Severity
from publisher.doctor import rocksdb as rocksdb_doctor
from wormhole.cli.examine import examine
from wormhole.errors import UsageError

URL = "rocksdb:///store"


def report(*severities: Severity) -> Report:
    made = Report(URL, {"library": "9.8"})
    for severity in severities:
        made.add("recycling", severity, "files are reused", "links do not hold", "turn it off")
    return made


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), ((Severity.OK, Severity.WARN), 0), ((Severity.WARN, Severity.PROBLEM), 1)],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_exit_code_tells_of_problems(
    severities: tuple[Severity, ...], code: int, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_doctor, "check", lambda url, state_dir: report(*severities))
    assert examine(URL, Path("/state"), as_json) == code


def test_what_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rocksdb_doctor, "check", lambda url, state_dir: report(Severity.OK, Severity.PROBLEM))
    examine(URL, Path("/state"), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [URL, "  library: 9.8", "ok       recycling: files are reused"]
    assert lines[5:] == [
        "PROBLEM  recycling: files are reused",
        "         links do not hold",
        "         next: turn it off",
        "1 problems, 0 notes",
    ]
    examine(URL, Path("/state"), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["severity"], len(told["findings"])) == (1, "problem", 2)


def test_other_sources_have_no_doctor() -> None:
    with pytest.raises(UsageError):
        examine("mysql://h/", Path("/state"), as_json=False)
