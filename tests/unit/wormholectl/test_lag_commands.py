from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin


def test_the_probe(admin: FakeAdmin) -> None:
    assert run("lag", "cache", "-p", "h:7") == (
        1,
        "LATE cache: cache/db1 (live) is 1m 15s behind (limit 30s)\n",
        "",
    )
    assert run("lag", "cache", "--max", "2m", "-p", "h:7")[0] == 0


@pytest.mark.parametrize("command", [["lag", "cache", "--max", "soon"], ["top", "--every", "soon"]])
def test_a_malformed_duration(command: list[str], admin: FakeAdmin) -> None:
    code, out, err = run(*command, "-p", "h:7")
    assert (code, out, admin.asked) == (2, "", [])
    assert "soon: must be a duration" in err


def test_why(admin: FakeAdmin) -> None:
    code, out, _ = run("why-lag", "mail/db1", "-p", "h:7", "--json")
    assert (code, json.loads(out)["stage"]) == (0, "control")


def test_top_without_a_terminal(admin: FakeAdmin) -> None:
    code, out, err = run("top", "-p", "h:7")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err
