from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormholectl.options import Where


@pytest.mark.parametrize("noun", ["publishers", "shards", "caravans", "subscribers"])
def test_a_bare_noun_lists(noun: str, admin: FakeAdmin) -> None:
    code, out, err = run(noun, "-p", "h:7", "--json")
    assert (code, err, len(json.loads(out)[noun])) == (0, "", 1)
    assert admin.asked == [Where("h:7")]
    code, out, err = run(noun, "-p", "h:7")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split()[0].lower() in {noun[:-1], noun}
