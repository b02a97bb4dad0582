"""Whatever a session sends and whatever comes back: credit, batch numbers, parts and acks keep their promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.push.session import Acked, PushSession
from wormhole.push.window import Window
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

Frame = push_pb2.SubscriberFrame


@given(st.integers(1, 200), st.lists(st.one_of(st.integers(1, 300), st.just(0)), max_size=80))
def test_in_flight_never_exceeds_the_credit_but_for_one_oversized_body(credit: int, steps: list[int]) -> None:
    """A step is the size of a body that wants to go, or 0: the oldest one's callbacks return."""
    window, flying = Window(credit), list[tuple[int, int]]()
    for step in steps:
        if step and window.admits(step):
            flying.append((window.sent(step), step))
        elif not step and flying:
            window.returned(flying.pop(0)[0])
        assert window.in_flight == sum(size for _, size in flying)
        assert window.in_flight <= credit or len(flying) == 1
    assert window.admits(1) or flying


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=8), st.integers(4096, 10_000))
def test_bodies_of_any_size_arrive_whole_in_order_and_in_frames_that_the_peer_takes(
    sizes: list[int], max_frame: int
) -> None:
    hello = push_pb2.Hello(application="app", subscriber="sub", max_frame_bytes=1 << 20)
    session = PushSession(hello)
    welcome = push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=max_frame)
    list(session.receive(push_pb2.SubscriberMessage(frames=[Frame(welcome=welcome)]).SerializeToString()))
    begin = LogPosition(1, 1, 0)
    flow, _ = session.assign("app", "log", (1 << 64) - 1, Datamarker(begin, "", begin), None, 0.0)
    accepted = push_pb2.Accepted(flow=flow.number, epoch=flow.epoch, credit=1)
    list(session.receive(push_pb2.SubscriberMessage(frames=[Frame(accepted=accepted)]).SerializeToString()))
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    received: list[bytes] = []
    for number, body in enumerate(bodies, 1):
        assert flow.window.admits(len(body))
        whole = b""
        for pieces in session.batch(flow, (body,), begin):
            data = b"".join(pieces)
            assert len(data) <= max_frame
            [frame] = push_pb2.PublisherMessage.FromString(data).frames
            if frame.WhichOneof("kind") == "batch":
                assert frame.batch.number == number
                whole = frame.batch.body
            else:
                assert frame.part.number == number
                whole += frame.part.data
        received.append(whole)
        flow.window.returned(number)
    assert received == bodies


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_acks_only_move_forward_and_only_to_offered_markers(steps: list[tuple[bool, int]]) -> None:
    """A step offers the next marker or acks one by its number, offered or not."""
    session = PushSession(push_pb2.Hello(application="app", subscriber="sub", max_frame_bytes=1 << 20))
    session.welcomed = True
    markers = [Datamarker(LogPosition(1, 1, i), str(i), LogPosition(1, 1, i)) for i in range(70)]
    flow, _ = session.assign("app", "log", 3, markers[0], None, 0.0)
    offered, acked = 0, -1
    for offer, number in steps:
        if offer:
            session.datamarker(flow, markers[offered], 0.0)
            offered += 1
            continue
        ack = push_pb2.Ack(flow=flow.number, epoch=3, marker=marker_to_message(markers[number]))
        data = push_pb2.SubscriberMessage(frames=[Frame(ack=ack)]).SerializeToString()
        legal = acked < number < offered
        try:
            events = list(session.receive(data))
        except ProtocolError:
            assert not legal
        else:
            assert legal
            assert events == [Acked(flow, markers[number])]
            acked = number
