"""What a publisher could tell of itself, for tests of those who show it."""

from __future__ import annotations

from typing import Any

from wormhole.wire.v1 import admin_pb2, push_pb2


def status(log: str) -> admin_pb2.PublisherStatus:
    """The publisher of shop/main/``log``: one live flow, one held, a caravan and a subscriber."""
    place = push_pb2.Position(incarnation=1, file=2, offset=30)
    return admin_pb2.PublisherStatus(
        dataset="shop",
        copy="main",
        log=log,
        version="0.1.0",
        compiled=["datastores.mysql.decode.x"],
        uptime_s=2.5,
        host="db-host",
        pid=77,
        coordination="connected",
        log_end=place,
        flows=[
            admin_pb2.FlowStatus(
                flow="cache/db1",
                state="live",
                subscriber="c1",
                epoch=3,
                place=place,
                marker=push_pb2.Datamarker(order=push_pb2.Position(incarnation=1, file=2, offset=10), delivered="7"),
                credit=3 << 20,
                in_flight=1 << 20,
                updates=1234,
                bytes=99,
                bad_values=4,
                lag_s=75,
                lag_bytes=20,
                lag_transactions=1500,
                headroom_s=7200,
                caravan=1,
                filter="true",
            ),
            admin_pb2.FlowStatus(flow="mail/db1", state="held", cause="the log is purged"),
        ],
        caravans=[
            admin_pb2.CaravanStatus(
                number=1,
                lead=True,
                place=place,
                bytes_per_s=2048,
                flows=["cache/db1"],
                buffered_bytes=5,
                target_bytes_per_s=4096,
                read_bytes=77,
                events=[admin_pb2.CaravanEvent(at_s=1, caravan=1, what="starts at 1/2/0")],
            )
        ],
        limits=admin_pb2.CaravanLimits(caravans=4, read_rate=8 << 20, buffer_bytes=64 << 20, buffered_bytes=5),
        events=[
            admin_pb2.CaravanEvent(at_s=1, caravan=1, what="starts at 1/2/0"),
            admin_pb2.CaravanEvent(at_s=2, caravan=2, what="ends at 1/2/9: merged into caravan 1"),
        ],
        subscribers=[
            admin_pb2.SubscriberStatus(
                application="cache", subscriber="c1", address="h:1", state="connected", connected_s=65, flows=1
            )
        ],
    )


def relay(**changes: Any) -> admin_pb2.RelayStatus:
    """What the relay of that publisher holds: two stretches, up to the end of the log."""
    first, hole, tip = (push_pb2.Position(incarnation=1, file=2, offset=offset) for offset in (5, 15, 30))
    usual: dict[str, Any] = {
        "mode": "hold",
        "begin": first,
        "begin_committed_s": 1_700_000_000.0,
        "tip": tip,
        "synced": hole,
        "stretches": [
            admin_pb2.RelayStretch(begin=first, end=push_pb2.Position(incarnation=1, file=2, offset=10)),
            admin_pb2.RelayStretch(begin=hole, end=tip),
        ],
        "held": hole,
        "bytes": 3 << 30,
        "log_bytes": 9 << 30,
        "budget_bytes": 8 << 30,
        "slot_budget_bytes": 1 << 30,
        "readers": 2,
        "unsynced_bytes": 4096,
    }
    return admin_pb2.RelayStatus(**usual | changes)


def attach() -> admin_pb2.AttachStatus:
    """The listener of that publisher for subscribers that dial."""
    refused = admin_pb2.RefusedAttempts(code="not-permitted", attempts=2)
    return admin_pb2.AttachStatus(address="db1:7490", attached=3, refused=[refused], unfinished=4)
