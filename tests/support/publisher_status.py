"""What a publisher could tell of itself, for tests of those who show it."""

from __future__ import annotations

from wormhole.wire.v1 import admin_pb2, push_pb2


def status(log: str) -> admin_pb2.PublisherStatus:
    """The publisher of shop/main/``log``: one live flow, one held, a caravan and a subscriber."""
    place = push_pb2.Position(incarnation=1, file=2, offset=30)
    return admin_pb2.PublisherStatus(
        dataset="shop",
        copy="main",
        log=log,
        version="0.1.0",
        compiled=["publisher.sources.mysql.decode.x"],
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
            admin_pb2.SubscriberStatus(application="cache", subscriber="c1", address="h:1", state="connected", flows=1)
        ],
    )
