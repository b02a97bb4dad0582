from __future__ import annotations

import pytest

from wormhole.admin import Change
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.show.changes import differences, show_change

STATUS = admin_pb2.PublisherStatus(source="mysql", log_base="binlog", log_end=push_pb2.Position(incarnation=1))


def test_what_moves_by_itself_is_no_difference() -> None:
    before = admin_pb2.FlowStatus(flow="a/b", state="live", lag_s=3, updates=5, skip=["1/1/1:0"])
    after = admin_pb2.FlowStatus(flow="a/b", state="held", lag_s=4, updates=6, loss_pending=True)
    after.marker.order.CopyFrom(push_pb2.Position(incarnation=1, file=2, offset=3))
    assert list(differences(STATUS, before, after)) == [
        ("state", "live", "held"),
        ("marker", "-", "1/2/3 (binlog.000002:3)"),
        ("skip", "1/1/1:0", "-"),
        ("loss pending", "no", "yes"),
    ]
    assert list(differences(STATUS, before, before)) == []


def test_a_long_cause_is_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "the server has not executed 0-1-7, which was delivered before 1/1/9. Next: `wormholectl repair a/b`"
    before = admin_pb2.FlowStatus(flow="a/b", state="held", cause=cause, loss_pending=True)
    after = admin_pb2.FlowStatus(flow="a/b", state="live")
    show_change(Change(STATUS, "a/b", before, after, ("never delivered",), made=False), as_json=False)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "state         held    live",
        "loss pending  yes     no",
        "cause         [1]     -",
        f"[1] {cause}",
        "note: never delivered",
    ]
