"""Whose turn it is: flows that woke at once, all others a few at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from caravan.buffer import ChangeBuffer
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import CaravanFlow, Piece
from datastores.memory.source import MemorySource
from publisher.push.flow import PublisherFlow
from publisher.push.outgoing import NextStep, Outgoing, next_step
from subscriber_sdk.testing.clock import FakeTimeLoop
from tests.support.present import present
from wormhole.filters import Filter
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.marker_store import FlowControl
from wormhole.push.connection import Traffic
from wormhole.push.room import Room
from wormhole.push.session import PushFlow, PushSession
from wormhole.push.window import Window
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import push_pb2


class Opened(Outgoing):
    """Has flows that a subscriber was assigned. ``woken``: set when there is more to send."""

    def __init__(self, flows: int) -> None:
        self.woken = asyncio.Event()
        source = MemorySource(log="log", sharding=Sharding("log"))
        marker = source.latest()
        hello = push_pb2.Hello(min_version=3, max_version=3, application="app", subscriber="s", max_frame_bytes=1 << 20)
        session = PushSession(hello, Room(1 << 20).share(lambda error: None))
        events = FleetEvents(lambda flow, error: None, lambda segment, marker: None)
        fleet = Fleet(source, Limits(), events, gather=lambda: 0.0)
        super().__init__(session, fleet, Traffic(), lambda: True, lambda flow, transaction: None, self.woken.set)
        self.all = [PublisherFlow("app", f"s{n}", Filter.parse(None), marker, marker.order) for n in range(flows)]
        for flow in self.all:
            self.open(session.assign("app", flow.shard, 1, marker, marker.order, 0.0)[0], flow)
        welcome = push_pb2.Welcome(version=3, application="app", subscriber="s", max_frame_bytes=1 << 20)
        self.receive(push_pb2.SubscriberFrame(welcome=welcome))

    def receive(self, frame: push_pb2.SubscriberFrame) -> None:
        list(self._session.receive(push_pb2.SubscriberMessage(frames=[frame]).SerializeToString()))


class Looked(Opened):
    """Notes which flows are looked at."""

    def __init__(self, flows: int) -> None:
        super().__init__(flows)
        self.looked: list[int] = []

    def _add_flow(self, push: PushFlow, flow: PublisherFlow, now: float, out: object) -> int:
        self.looked.append(push.number)
        return 0

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


def test_a_datamarker_is_offered_when_its_interval_has_passed() -> None:
    """No update follows that would wake the flow, and it is checked every half second."""
    outgoing = Opened(1)
    [(push, flow)] = outgoing.flows.values()
    outgoing.receive(push_pb2.SubscriberFrame(accepted=push_pb2.Accepted(flow=push.number, epoch=1, credit=1)))
    marker = flow.delivery.marker
    caravan_flow = CaravanFlow("app", flow.shard, flow.filter, marker, 1, lambda: None)
    caravan_flow.board(ChangeBuffer(marker.order), 0)
    flow.delivery.begin(caravan_flow)
    push.marker_every_s, push.dirty = 0.01, True  # it was sent updates at 0 s
    loop = FakeTimeLoop()

    async def offered() -> list[bytes]:
        for _ in range(2):  # it may have further turns meanwhile
            assert list(outgoing.messages(0.0)) == []
        outgoing.woken.clear()
        await asyncio.wait_for(outgoing.woken.wait(), 0.4)
        return list(outgoing.messages(loop.time()))

    [message] = loop.run_until_complete(offered())
    assert loop.time() == 0.01
    [frame] = push_pb2.PublisherMessage.FromString(message).frames
    assert marker_from_message(frame.datamarker.marker) == marker
    loop.close()


def test_a_flow_behind_a_thousand_small_transactions_sends_some_of_them_in_a_round() -> None:
    """While a round is put together, no other stream is served."""
    outgoing = Opened(6)
    source = MemorySource(log="log", sharding=Sharding("log"))
    marker, reader = source.latest(), source.open(source.latest())
    buffer = ChangeBuffer(marker.order)
    for _ in range(500):
        source.commit([(Op.UPSERT, "t", b"k", {"value": b"v"})])
        segment = present(reader.read(1 << 20, 0))
        segment.runs = dict.fromkeys((flow.shard for flow in outgoing.all), *segment.runs.values())
        buffer.append(segment)
    for push, flow in outgoing.flows.values():
        outgoing.receive(
            push_pb2.SubscriberFrame(accepted=push_pb2.Accepted(flow=push.number, epoch=1, credit=1 << 20))
        )
        caravan_flow = CaravanFlow("app", flow.shard, flow.filter, marker, 1, lambda: None)
        caravan_flow.board(buffer, 0)
        flow.delivery.begin(caravan_flow)

    def sent() -> list[int]:
        """The updates of each flow in the next round."""
        frames = [
            frame for data in outgoing.messages(0.0) for frame in push_pb2.PublisherMessage.FromString(data).frames
        ]
        counts = Counter(frame.batch.flow for frame in frames if frame.HasField("batch"))
        return [counts[number] for number in outgoing.flows]

    rounds = [sent() for _ in range(60)]
    assert max(map(max, rounds)) == 64
    assert max(map(sum, rounds)) < 256 + 64
    assert [sum(of_flow) for of_flow in zip(*rounds, strict=True)] == [500] * 6


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
