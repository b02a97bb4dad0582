from __future__ import annotations

import json

import pytest

from tests.support.fake_admin import FakeAdmin
from wormholectl.admin_client import Answer
from wormholectl.dead_letter_listing import show
from wormholectl.discovery import Where


def test_for_people(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(Where("h:7"), "", 1, False) == 0
    head, row, rest = capsys.readouterr().out.splitlines()
    assert head.split() == ["FLOW", "UPDATE", "TABLE", "KEY", "OP", "PARKED", "ERROR"]
    assert row.split()[:5] == ["cache/db1", "1/2/3:0", "users", "users:7", "insert"]
    assert row.endswith("ValueError: no such user")
    assert rest == "1 of 2; --limit shows more"


def test_for_programs_with_one_that_is_silent(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    admin.answers.append(Answer("h:9", None, "h:9 is silent"))
    assert show(Where("h:7"), "", 100, True) == 3
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["total"], told["unreachable"]) == (2, [{"address": "h:9", "problem": "h:9 is silent"}])
    assert told["dead_letters"][0] == {
        "publisher": "shop/main/db1",
        "flow": "cache/db1",
        "update": "1/2/3:0",
        "table": "users",
        "key": "users:7",
        "op": "insert",
        "parked_at": "2023-11-14T22:13:20Z",
        "error": "ValueError: no such user",
        "bytes": 99,
        "retrying": False,
    }
    assert told["dead_letters"][1]["retrying"] is True
    assert err == "warning: h:9 is silent\n"
