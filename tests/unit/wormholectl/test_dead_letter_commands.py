from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormholectl.discovery import Where


@pytest.mark.parametrize(
    "arguments", [[], ["--flow", "cache/db1"], ["list", "cache/db1"]], ids=["bare", "of a flow", "list"]
)
def test_listing(arguments: list[str], admin: FakeAdmin) -> None:
    code, out, err = run("flows", "dead-letters", *arguments, "-p", "h:7", "--json")
    assert (code, err) == (0, "")
    assert [one["update"] for one in json.loads(out)["dead_letters"]] == ["1/2/3:0", "1/2/4:0"]


def test_of_a_flow_that_there_is_not(admin: FakeAdmin) -> None:
    code, out, err = run("flows", "dead-letters", "list", "cash/db1", "-p", "h:7")
    assert (code, out) == (2, "")
    assert "did you mean cache/db1" in err


def test_again_and_never(admin: FakeAdmin) -> None:
    assert run("flows", "-p", "h:7", "dead-letters", "retry", "cache/db1", "--yes")[0] == 0
    assert run("flows", "dead-letters", "retry", "cache/db1", "--key", "users:7", "-p", "h:7", "--yes")[0] == 0
    assert run("flows", "dead-letters", "discard", "cache/db1", "--all", "-p", "h:7", "--yes")[0] == 0
    assert admin.asked == [Where("h:7")] * 3  # also what stands before the noun
    every, one, never = admin.requests
    assert (every.WhichOneof("what"), every.retry_dead_letters.key) == ("retry_dead_letters", "")
    assert one.retry_dead_letters.key == "users:7"
    assert never.WhichOneof("what") == "discard_dead_letters"


@pytest.mark.parametrize("options", [[], ["--all", "--key", "users:7"]])
def test_what_is_forgotten_must_be_clear(options: list[str], admin: FakeAdmin) -> None:
    code, _, err = run("flows", "dead-letters", "discard", "cache/db1", *options, "-p", "h:7", "--yes")
    assert (code, admin.requests) == (2, [])
    assert "either --key KEY or --all" in err
