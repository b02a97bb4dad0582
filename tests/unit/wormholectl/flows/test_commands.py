from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormholectl.shared.options import Where


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
