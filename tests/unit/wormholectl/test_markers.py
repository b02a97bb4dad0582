from __future__ import annotations

import json
import time

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin


def test_bare_and_show_list(admin: FakeAdmin) -> None:
    code, out, _ = run("markers", "-p", "h:7")
    head, first, second = out.splitlines()
    assert (code, head.split()[:3]) == (0, ["FLOW", "MARKER", "DELIVERED"])
    assert first.split()[:3] == ["cache/db1", "1/2/10", "7"]
    assert second.split()[:3] == ["mail/db1", "-", "-"]
    code, out, _ = run("markers", "show", "cache/db1", "-p", "h:7", "--json")
    (one,) = json.loads(out)["markers"]
    assert (one["flow"], one["marker"], one["delivered"], one["headroom_s"]) == ("cache/db1", "1/2/10", "7", 7200.0)


def test_set_and_forget(admin: FakeAdmin) -> None:
    assert run("markers", "set", "cache/db1", "1/1/5", "-p", "h:7", "-y")[0] == 0
    assert run("markers", "forget", "cache/db1", "-p", "h:7", "-y")[0] == 0
    one, other = admin.requests
    assert one.set_marker.place == "1/1/5"
    assert other.WhichOneof("what") == "forget"


def test_rewind_counts_from_now(admin: FakeAdmin) -> None:
    before = time.time()
    assert run("markers", "rewind", "cache/db1", "--since", "2h", "-p", "h:7", "-y")[0] == 0
    assert before - 7200 <= admin.requests[0].set_marker.at_s <= time.time() - 7200
