from __future__ import annotations

from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.show.changes import differences

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
