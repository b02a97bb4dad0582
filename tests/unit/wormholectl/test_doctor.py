from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormholectl import examine


def test_the_exit_code_is_the_examinations(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def found(*arguments: object) -> int:
        asked.extend(arguments)
        return 1

    monkeypatch.setattr(examine, "examine", found)
    assert run("doctor", "rocksdb:///store", "--json", "--state-dir", "/state") == (1, "", "")
    assert asked == ["rocksdb:///store", Path("/state"), True, None]


def test_without_a_url_it_is_the_installation(admin: FakeAdmin) -> None:
    code, out, err = run("doctor", "-p", "h:7")
    assert (code, err) == (1, "")
    assert "PROBLEM  flows: held: mail/db1" in out
    assert "next: wormholectl why-lag mail/db1" in out
    code, out, _ = run("doctor", "-p", "h:7", "--json")
    assert (code, json.loads(out)["severity"]) == (1, "problem")


def test_of_an_installation_that_does_not_answer() -> None:
    code, out, err = run("doctor", "-p", "127.0.0.1:1")
    assert (code, err) == (3, "")
    assert "PROBLEM  publishers: the publisher at 127.0.0.1:1 does not answer" in out


def test_nothing_says_what_to_look_at() -> None:
    code, out, err = run("doctor")
    assert (code, out) == (2, "")
    assert "-c FILE.toml" in err
