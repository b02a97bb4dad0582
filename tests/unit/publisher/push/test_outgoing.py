"""Whose turn it is: flows that woke at once, all others a few at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import Piece
from datastores.memory.source import MemorySource
from publisher.push.flow import PublisherFlow
from publisher.push.outgoing import NextStep, Outgoing, next_step
from wormhole.filters import Filter
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.sharding import Sharding
from wormhole.ports.marker_store import FlowControl
from wormhole.push.connection import Traffic
from wormhole.push.room import Room
from wormhole.push.session import PushFlow, PushSession
from wormhole.push.window import Window
from wormhole.wire.v1 import push_pb2


class Looked(Outgoing):
    """Notes which flows are looked at."""

    def __init__(self, flows: int) -> None:
        source = MemorySource(log="log", sharding=Sharding("log"))
        marker = source.latest()
        hello = push_pb2.Hello(min_version=3, max_version=3, application="app", subscriber="s")
        session = PushSession(hello, Room(1 << 20).share(lambda error: None))
        events = FleetEvents(lambda flow, error: None, lambda segment, marker: None)
        fleet = Fleet(source, Limits(), events, gather=lambda: 0.0)
        super().__init__(session, fleet, Traffic(), lambda: True, lambda flow, transaction: None, lambda: None)
        self.all = [PublisherFlow("app", f"s{n}", Filter.parse(None), marker, marker.order) for n in range(flows)]
        for flow in self.all:
            self.open(session.assign("app", flow.shard, 1, marker, marker.order, 0.0)[0], flow)
        welcome = push_pb2.Welcome(version=3, application="app", subscriber="s", max_frame_bytes=1 << 20)
        message = push_pb2.SubscriberMessage(frames=[push_pb2.SubscriberFrame(welcome=welcome)])
        list(session.receive(message.SerializeToString()))
        self.looked: list[int] = []

    def _add_flow(self, push: PushFlow, flow: PublisherFlow, now: float, out: object) -> None:
        self.looked.append(push.number)

    def at(self, now: float) -> list[int]:
        self.looked.clear()
        list(self.messages(now))
        return sorted(self.looked)


@pytest.fixture
def outgoing() -> Looked:
    one = Looked(100)
    assert one.at(10.0) == list(range(1, 101))
    return one


def test_each_flow_is_looked_at_once_in_half_a_second(outgoing: Looked) -> None:
    rounds = [outgoing.at(10.0 + 0.05 * number) for number in range(1, 11)]
    assert max(map(len, rounds)) <= 11
    assert sorted({number for one in rounds for number in one}) == list(range(1, 101))
    assert sum(map(len, rounds)) <= 110


def test_a_flow_that_woke_has_its_turn_at_once(outgoing: Looked) -> None:
    outgoing.wake(outgoing.all[6])
    assert outgoing.at(10.0) == [7]
    assert outgoing.at(10.0) == []


def test_after_a_long_rest_all_are_looked_at(outgoing: Looked) -> None:
    assert outgoing.at(99.0) == list(range(1, 101))


def test_flows_that_came_or_left_amid_a_sweep_are_no_fault(outgoing: Looked) -> None:
    outgoing.at(10.25)
    for number in range(1, 51):
        outgoing.close(number)
    assert set(outgoing.at(10.75)) <= set(range(51, 101))
    assert outgoing.at(11.25) == list(range(51, 101))


def _body(size: int = 4, *, bad: bool = False) -> Any:
    return SimpleNamespace(size=size, bad=("a bad value",) if bad else ())


@pytest.mark.parametrize(
    ("piece", "step"),
    [
        (Piece(_body(), None, None), NextStep.SEND),
        (Piece(_body(5), None, None), NextStep.WAIT),
        (Piece(_body(bad=True), None, None), NextStep.HOLD),
        (Piece(None, None, None), NextStep.PASS),
        (Piece(None, None, LogGap(LossKind.PURGED, "", "", "m")), NextStep.ASK),
        (Piece(None, None, None, undone="t:1"), NextStep.BEGIN_AGAIN),
        (Piece(None, None, None, DecodeError("it is damaged", update_id="t:1:0")), NextStep.SKIP),
        (Piece(None, None, None, DecodeError("it is damaged", update_id="t:2:0")), NextStep.HOLD),
    ],
)
def test_what_is_next_for_a_piece_of_log(piece: Piece, step: NextStep) -> None:
    marker = MemorySource(log="log", sharding=Sharding("log")).latest()
    flow = PublisherFlow("app", "log", Filter.parse(None), marker, marker.order)
    flow.configure(flow.filter, halts_on_bad_value=True, parks=False)
    flow.controlled(FlowControl(skip=("t:1:0",)))
    window = Window(8)
    window.sent(4)
    assert next_step(piece, flow, window) is step


def test_a_bad_value_is_sent_to_an_application_that_takes_it() -> None:
    marker = MemorySource(log="log", sharding=Sharding("log")).latest()
    flow = PublisherFlow("app", "log", Filter.parse(None), marker, marker.order)
    assert next_step(Piece(_body(bad=True), None, None), flow, Window(8)) is NextStep.SEND
