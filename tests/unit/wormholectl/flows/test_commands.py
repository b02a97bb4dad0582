"""``wormholectl flows`` and dead letters."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.admin.admin_service import Answer
from wormholectl.shared.options import Where

# --- commands ---


def test_a_bare_noun_lists_what_is_asked_for(admin: FakeAdmin) -> None:
    code, out, err = run("flows", "-p", "h:7", "--json")
    assert (code, err, [one["flow"] for one in json.loads(out)["flows"]]) == (0, "", ["cache/db1", "mail/db1"])
    code, out, _ = run("flows", "-p", "h:7", "--application", "mail", "--state", "held", "--json")
    assert [one["flow"] for one in json.loads(out)["flows"]] == ["mail/db1"]
    assert admin.asked == [Where("h:7")] * 2


@pytest.mark.parametrize(
    ("arguments", "what", "detail"),
    [
        (["pause"], "pause", ""),
        (["resume"], "resume", ""),
        (["skip", "--update", "1/2/3:0"], "skip", 'update_id: "1/2/3:0"\n'),
        (["accept-loss"], "accept_loss", ""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_verb_asks_for_its_change(arguments: list[str], what: str, detail: str, admin: FakeAdmin) -> None:
    verb, *options = arguments
    code, out, err = run("flows", verb, "cache/db1", *options, "-p", "h:7", "--yes")
    assert (code, err) == (0, "")
    assert "was changed" in out
    (request,) = admin.requests
    assert (request.flow, request.WhichOneof("what"), request.preview) == ("cache/db1", what, False)
    assert str(getattr(request, what)) == detail


# --- dead letters ---


@pytest.mark.parametrize(
    "arguments", [[], ["--flow", "cache/db1"], ["list", "cache/db1"]], ids=["bare", "of a flow", "list"]
)
def test_listing(arguments: list[str], admin: FakeAdmin) -> None:
    code, out, err = run("flows", "dead-letters", *arguments, "-p", "h:7", "--json")
    assert (code, err) == (0, "")
    assert [one["update"] for one in json.loads(out)["dead_letters"]] == ["1/2/3:0", "1/2/4:0"]


def test_again_and_never(admin: FakeAdmin) -> None:
    assert run("flows", "-p", "h:7", "dead-letters", "retry", "cache/db1", "--yes")[0] == 0
    assert run("flows", "dead-letters", "retry", "cache/db1", "--key", "users:7", "-p", "h:7", "--yes")[0] == 0
    assert run("flows", "dead-letters", "discard", "cache/db1", "--all", "-p", "h:7", "--yes")[0] == 0
    assert admin.asked == [Where("h:7")] * 3  # also what stands before the noun
    every, one, never = admin.requests
    assert (every.WhichOneof("what"), every.retry_dead_letters.key) == ("retry_dead_letters", "")
    assert one.retry_dead_letters.key == "users:7"
    assert never.WhichOneof("what") == "discard_dead_letters"


def test_for_people(admin: FakeAdmin) -> None:
    code, out, _ = run("flows", "dead-letters", "--limit", "1", "-p", "h:7")
    head, row, rest = out.splitlines()
    assert code == 0
    assert head.split() == ["FLOW", "UPDATE", "TABLE", "KEY", "OP", "PARKED", "PARKED", "BY", "ERROR"]
    assert row.split()[:5] == ["cache/db1", "1/2/3:0", "users", "users:7", "insert"]
    assert row.endswith("ValueError: no such user")
    assert rest == "1 of 2; --limit shows more"


def test_for_programs_with_one_that_is_silent(admin: FakeAdmin) -> None:
    admin.answers.append(Answer("h:9", None, "h:9 is silent"))
    code, out, err = run("flows", "dead-letters", "-p", "h:7", "--json")
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
        "parked_by": None,
    }
    assert told["dead_letters"][1]["retrying"] is True
    assert (code, err) == (3, "warning: h:9 is silent\n")
