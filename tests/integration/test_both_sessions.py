"""Our session and the publisher's, face to face: what one says the other takes."""

from __future__ import annotations

from collections.abc import Sequence

from subscriber_sdk.options.admission import Admission
from subscriber_sdk.stream.events import Assigned, BatchArrived, MarkerArrived, PublisherWelcomed, Revoked
from subscriber_sdk.stream.events import Event as SubscriberEvent
from subscriber_sdk.stream.session import Session
from subscriber_sdk.testing import body_of, marker_at, update
from tests.support.given import given
from wormhole.push.session import Acked, Opened, Progressed, PushSession, Released, Welcomed
from wormhole.push.session import Event as PublisherEvent
from wormhole.wire.v1 import push_pb2

Piece = bytes | memoryview


class Pair:
    """Two sessions with nothing between them."""

    def __init__(self) -> None:
        hello = push_pb2.Hello(
            min_version=3,
            max_version=3,
            application="app",
            subscriber="one",
            heartbeat_ms=1000,
            max_frame_bytes=4096,
        )
        self.publisher = PushSession(hello)
        self.subscriber = Session(Admission("app", "one"), max_frame_bytes=4096, max_body_bytes=1 << 20, now=0.0)

    def push(self, *sent: bytes | Sequence[Piece]) -> list[SubscriberEvent]:
        """Each becomes a message of its own."""
        events = []
        for frame in sent:
            data = frame if isinstance(frame, bytes) else b"".join(frame)
            events += self.subscriber.receive(data, 0.0)
        assert not self.subscriber.closed
        return events

    def answer(self) -> list[PublisherEvent]:
        data = given(self.subscriber.take_output(0.0))
        return [event for event in self.publisher.receive(data) if event is not None]


def test_a_flow_from_hello_to_released() -> None:
    pair = Pair()
    publisher, subscriber = pair.publisher, pair.subscriber
    assert pair.push(publisher.start()) == [PublisherWelcomed()]
    assert [type(event) for event in pair.answer()] == [Welcomed]

    flow, assign = publisher.assign("app", "s", 3, marker_at(0), None, 0.0)
    assert pair.push(assign) == [Assigned(flow.number, 3, "s", marker_at(0), False)]
    subscriber.accept(flow.number, 1 << 16, None)
    assert [type(event) for event in pair.answer()] == [Opened]

    change = update("t", key=1, after={"v": bytes(10_000)})
    body = body_of([change])
    pair.push(*publisher.schemas([change.schema]))
    parts = publisher.batch(flow, (body,), marker_at(0).order)
    assert len(parts) > 1
    assert pair.push(*parts) == [BatchArrived(flow.number, 1, False, body)]
    offered = given(publisher.datamarker(flow, marker_at(1), 1.0))
    assert pair.push(offered) == [MarkerArrived(flow.number, marker_at(1))]

    subscriber.progress(flow.number, 1)
    subscriber.ack(flow.number, marker_at(1))
    assert [type(event) for event in pair.answer()] == [Acked, Progressed]
    assert flow.window.in_flight == 0

    assert pair.push(publisher.revoke(flow, "moved")) == [Revoked(flow.number, "moved")]
    subscriber.release(flow.number, marker_at(1))
    assert [type(event) for event in pair.answer()] == [Released]


def test_of_several_offered_markers_the_newest_may_be_acknowledged_alone() -> None:
    pair = Pair()
    publisher, subscriber = pair.publisher, pair.subscriber
    pair.push(publisher.start())
    flow, assign = publisher.assign("app", "s", 1, marker_at(0), None, 0.0)
    pair.push(assign)
    subscriber.accept(flow.number, 1 << 16, None)
    pair.answer()
    for number in (1, 2, 3):
        offered = given(publisher.datamarker(flow, marker_at(number), float(number)))
        pair.push(offered)
    subscriber.ack(flow.number, marker_at(3))
    (acked,) = pair.answer()
    assert isinstance(acked, Acked)
    assert acked.marker == marker_at(3)
    assert not flow.offered
