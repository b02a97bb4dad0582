"""A malicious subscriber: what each of its messages can cost its publisher. No other application is affected.

Work is counted, never timed: calls that a frame causes, what is kept of it, how much of a budget it holds. The long
form beside it (:mod:`tests.hostile.test_malicious_subscriber_soak`) measures what other applications feel.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from types import FrameType
from typing import Any

import grpc
import grpc.aio
import pytest

from publisher.flows.verifications import Verifications
from publisher.publisher import Publisher
from publisher.push import outgoing as outgoing_module
from publisher.push import stream as stream_module
from publisher.push.flow import PublisherFlow
from publisher.push.messages import Messages
from publisher.push.stream import SubscriberStream
from subscriber_sdk.testing import Change, body_of
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from tests.support.letters import USERS, letter
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.audit.sent_counts import SentCounts
from wormhole.filters import Filter
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema, _remembered
from wormhole.model.segment import ChunkRange
from wormhole.model.values import Op
from wormhole.model.verification import Difference, DifferenceKind, TableVerification, VerifyMode
from wormhole.ports.dead_letters import place_of, place_to_message, wrap
from wormhole.push.allowance import _AT_ONCE, Reading
from wormhole.push.connection import Refusal
from wormhole.push.frames import varint
from wormhole.push.parking import Arriving, open_letter, park_frames
from wormhole.push.room import Room
from wormhole.push.session import Progressed, PushFlow, PushSession, Reported, Verified
from wormhole.push.window import MOST_CREDIT
from wormhole.wire.bounds import MOST_FRAMES, MOST_TEXT, MOST_WINDOWS
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2, update_pb2

Frame = push_pb2.SubscriberFrame
EPOCH = 7
HELLO = push_pb2.Hello(
    min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, heartbeat_ms=3000
)
CHUNK = ChunkRange("t", Schema("t", (Column("id", "int"),), ()), None, None, 0, 1, LogPosition(1, 1, 1))
LARGE = "x" * (3 << 20)
KINDS = [*(field.name for field in Frame.DESCRIPTOR.fields), ""]


# --- every message of the protocol ------------------------------------------------------------------------------------


class Peer:
    """A session with one open flow, and what its subscriber says."""

    def __init__(self) -> None:
        self.room = Room(8 << 20)
        self.evicted: list[str] = []
        self.session = PushSession(HELLO, self.room.share(lambda error: self.evicted.append(error.message)))
        self.sent_counts = SentCounts(marker().order, None)
        self.kept: list[Any] = []
        self.calls = [0]
        self.owner = PublisherFlow("app", "log", Filter.parse(None), marker(), marker().order)
        self.verifications = Verifications()
        self.verifications.begin(self.owner, 1)
        self.longest = 0  # calls between two turns that the publisher's loop may have
        self.says(Frame(welcome=push_pb2.Welcome(version=3, application="app", subscriber="sub", verifies=True)))
        self.flow, _ = self.session.assign(
            "app", "log", EPOCH, marker(), None, 0.0, generation=1, verify=VerifyMode.REPAIR
        )

    def open(self) -> PushFlow:
        self.says(Frame(accepted=push_pb2.Accepted(flow=1, epoch=EPOCH, credit=1 << 20, life=1)))
        self.session.schemas((USERS,))
        self.session.batch(self.flow, (b"x",), marker().order)
        self.session.chunk_end(self.flow, CHUNK, narrowed=False, rows=10)
        self.session.scan_end(self.flow, "t", 1, 10)
        self.session.datamarker(self.flow, marker(5), 1.0)
        return self.flow

    def says(self, *frames: push_pb2.SubscriberFrame) -> None:
        self.hears(push_pb2.SubscriberMessage(frames=frames).SerializeToString())

    def hears(self, data: bytes) -> None:
        """What the publisher does with a message, as far as it costs by its content."""
        before = self.calls[0]
        for event in self.session.receive(data):
            if isinstance(event, Progressed):
                self.sent_counts.reported(event.processed)
            if isinstance(event, Reported):
                self.kept.append(event.report)
            if isinstance(event, Verified):
                self.verifications.add(self.owner, event.found)
            self.longest, before = max(self.longest, self.calls[0] - before), self.calls[0]
        self.longest = max(self.longest, self.calls[0] - before)


def marker(offset: int = 1) -> Any:
    order = LogPosition(1, 1, offset)
    return Datamarker(order, str(offset), order, None, 5)


@contextmanager
def counted(calls: list[int]) -> Iterator[None]:
    """Adds up how many calls are made inside."""

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls[0] += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def message(frames: list[push_pb2.SubscriberFrame]) -> bytes:
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


def accepted(**fields: Any) -> bytes:
    return message([Frame(accepted=push_pb2.Accepted(flow=1, epoch=EPOCH, credit=1, **fields))])


def report(**fields: Any) -> bytes:
    handler = push_pb2.HandlerReport(**fields)
    return message([Frame(report=push_pb2.Report(flow=1, epoch=EPOCH, handler=handler))])


def park(**fields: Any) -> bytes:
    told, parcel = letter(5)
    given = {"update_id": told.id, "body": parcel.body, "schema": parcel.schema, **fields}
    if "place" not in given and not given.get("more"):
        given["place"] = place_to_message(told.place)
    return message([Frame(park=push_pb2.Park(flow=1, epoch=EPOCH, **given))])


def of_flow(kind: str, **fields: Any) -> bytes:
    one: Any = Frame()
    getattr(one, kind).MergeFrom(type(getattr(one, kind))(flow=1, epoch=EPOCH, **fields))
    return message([one])


def extra(values: int = 1) -> push_pb2.Difference:
    key = update_pb2.RowKey(values=[update_pb2.Value()] * values)
    return push_pb2.Difference(kind=push_pb2.Difference.EXTRA, key=key)


def differs(columns: list[str]) -> push_pb2.Difference:
    key = update_pb2.RowKey(values=[update_pb2.Value(int=1)])
    return push_pb2.Difference(kind=push_pb2.Difference.DIFFERS, key=key, columns=columns)


def with_unknown_fields(data: bytes, size: int) -> bytes:
    """A message whose only frame carries ``size`` bytes more, in an unknown field (99)."""
    [frame] = push_pb2.SubscriberMessage.FromString(data).frames
    inner = frame.SerializeToString()
    junk = b"\x9a\x06" + varint(size) + bytes(size)
    return b"\x0a" + varint(len(inner) + len(junk)) + inner + junk


@cache
def messages() -> dict[str, list[tuple[bytes, str]]]:
    """Per kind of message: what it carries, and what the stream ends with ("": it is taken, within the bounds).

    They are tens of megabytes, which not every process of a run is to make."""
    wide = [push_pb2.Processed() for _ in range(100_000)]
    return {
        "welcome": [
            (message([Frame(welcome=push_pb2.Welcome(version=3, application=LARGE))]), "that carries no update"),
            (message([Frame(welcome=push_pb2.Welcome(version=3, application="x" * 5000))]), "welcome: sent twice"),
        ],
        "accepted": [
            (accepted(processed=wide), "accepted.processed: 100000 entries"),
            (accepted(epochs=range(100_000)), "accepted.epochs: 100000 entries"),
            (accepted(have=push_pb2.Datamarker(delivered=LARGE)), "that carries no update"),
        ],
        "progress": [
            (of_flow("progress", processed=wide), "progress.processed: 100000 entries"),
            (of_flow("progress", processed=wide[:MOST_WINDOWS]), ""),
            (of_flow("progress", number=2**63), "progress: batch 9223372036854775808 was never sent"),
        ],
        "ack": [
            (of_flow("ack", marker=marker_to_message(marker(5)), processed=wide), "ack.processed: 100000 entries"),
            (of_flow("ack", marker=push_pb2.Datamarker(delivered="1", order=push_pb2.Position())), "was never offered"),
            (
                of_flow("ack", marker=push_pb2.Datamarker(delivered="x" * 400_000, order=push_pb2.Position())),
                "was never",
            ),
        ],
        "released": [(of_flow("released", processed=wide), "released.processed: 100000 entries")],
        "heartbeat": [(message([Frame(heartbeat=push_pb2.Heartbeat())] * 100_000), "has more than 65536 fields")],
        "failed": [
            (of_flow("failed", reason=2, message=LARGE), "that carries no update"),
            (of_flow("failed", reason=2, message="x" * 400_000), ""),
            (of_flow("failed", reason=2, update_id="x" * 5000), "failed.update_id: 5000 characters"),
        ],
        "loss_decision": [
            (message([Frame(loss_decision=push_pb2.LossDecision(flow=99))]), "flow 99 was never assigned")
        ],
        "goodbye": [(message([Frame(goodbye=push_pb2.Goodbye(message="x" * 400_000, hint="y" * 100_000))]), "")],
        "park": [
            (park(body=bytes(3 << 20), more=True), ""),
            (park(update_id="x" * 5000), "park.update_id: 5000 characters"),
            (park(schema=b"\x1a\x00" * 400_000), "park.schema: 800000 bytes"),
            (park(place=push_pb2.UpdatePlace(transaction="x" * 5000)), "park.place.transaction: 5000 characters"),
            (park(error=LARGE), ""),
            (with_unknown_fields(park(), 3 << 20), "has more than 1 fields"),
        ],
        "report": [
            (report(slowest_table=LARGE), "that carries no update"),
            (report(slowest_table="x" * 200_000, running_update="y" * 200_000), ""),
            (with_unknown_fields(report(updates=3), 400_000), ""),
            (report(busy_s=float("nan")), "report.busy_s: nan is no duration"),
            (report(running_s=float("inf")), "report.running_s: inf is no duration"),
        ],
        "verified": [
            (of_flow("verified", table=LARGE), "that carries no update"),
            (of_flow("verified", table="x" * 400_000), "was sent no rows of"),
            (of_flow("verified", table="t", compared=2**64 - 1), "18446744073709551615 rows; 10 were sent"),
            (of_flow("verified", table="t", extra=2**64 - 1), "no table has so many rows"),
            (of_flow("verified", table="t", differences=[extra()] * 50_000), "verified.differences: 50000 entries"),
            (of_flow("verified", table="t", differences=[extra()] * 1000, extra=1000), ""),
            (of_flow("verified", table="t", differences=[extra(200_000)]), ""),
            (of_flow("verified", table="t", differences=[differs(["c"] * 100_000)]), "columns: 100000 entries"),
            (of_flow("verified", table="t", differences=[differs(["c" * 100_000])]), "columns: 100000 characters"),
            (of_flow("verified", table="t", differences=[differs(["c"] * 120)] * 1000), ""),
            (of_flow("verified", table="t", trouble="x" * 400_000), ""),
        ],
        "": [
            (b"\x0a\x00" * (1 << 21), "a frame of a kind that this version does not know"),
            (b"\x0a\x83\x80\x80\x01" + bytes(3), "is no valid message"),
            (b"\x0b" * 100, "is no valid message"),
            (b"\x10\x01" * (1 << 21), "has more than 65536 fields"),
        ],
    }


def test_every_message_of_the_protocol_is_tried() -> None:
    assert set(messages()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_message_costs_little_and_leaves_little(kind: str) -> None:
    for data, ends in messages()[kind]:
        peer = Peer()
        if kind != "accepted":
            peer.open()
        with counted(peer.calls):
            try:
                peer.hears(data)
                told = ""
            except ProtocolError as error:
                told = str(error)
        assert ends in told if ends else not told
        assert len(told) < 2 * MOST_TEXT
        assert peer.longest < 6 * MOST_WINDOWS, ends
        assert sum(len(kept.SerializeToString()) for kept in peer.kept) < 3000, ends
        assert len(peer.sent_counts._reported) <= 1, ends
        assert peer.room.used <= peer.room.most, ends


def test_the_work_of_a_message_is_counted_and_has_a_bound() -> None:
    peer = Peer()
    with pytest.raises(ProtocolError):
        peer.hears(messages()["heartbeat"][0][0])
    assert peer.session.work <= 5 * MOST_FRAMES


def test_what_is_kept_of_a_verification_has_a_bound() -> None:
    """Keys and names of columns are as long as a subscriber likes."""
    peer = Peer()
    peer.open()
    for number in range(60):
        key = update_pb2.RowKey(values=[update_pb2.Value(bytes=number.to_bytes(1, "big") + bytes(400_000))])
        one = push_pb2.Difference(kind=push_pb2.Difference.EXTRA, key=key)
        peer.hears(of_flow("verified", table="t", extra=1, differences=[one], trouble=f"{number % 3}" * 900))
    [found] = peer.verifications.of(peer.owner, 1)
    assert found.extra == 60
    assert sum(len(one.key) for one in found.differences) < 4 << 20
    keys = peer.verifications.take_extra(peer.owner, "t")
    assert sum(map(len, keys)) < 8 << 20
    assert found.not_compared == 60 - len(keys) > 0
    assert "take too much memory" in found.trouble
    assert len(found.trouble) < 4000


def test_keys_that_were_asked_for_take_no_room_from_another_table() -> None:
    verifications = Verifications()
    owner = Peer().owner
    verifications.begin(owner, 1)
    for number, ended in ((0, False), (1, True), (2, False)):
        extra = tuple(
            Difference(
                DifferenceKind.EXTRA,
                update_pb2.RowKey(values=[update_pb2.Value(bytes=bytes([one]) * 400_000)]).SerializeToString(),
            )
            for one in range(20)
        )
        verifications.add(owner, TableVerification(f"t{number}", extra=20, differences=extra, ended=ended))
        assert len(verifications.take_extra(owner, f"t{number}")) == (0 if ended else 20)
    assert not any(found.not_compared or found.trouble for found in verifications.of(owner, 1))


def test_credit_is_limited_so_that_updates_in_flight_have_a_bound() -> None:
    peer = Peer()
    peer.says(Frame(accepted=push_pb2.Accepted(flow=1, epoch=EPOCH, credit=2**64 - 1)))
    assert peer.flow.window.credit == MOST_CREDIT


def test_windows_of_which_a_subscriber_was_never_sent_anything_leave_nothing() -> None:
    peer = Peer()
    peer.open()
    peer.sent_counts.opened(1)
    told = [push_pb2.Processed(window=2**40 + i, updates=1) for i in range(MOST_WINDOWS)]
    peer.says(Frame(progress=push_pb2.Progress(flow=1, epoch=EPOCH, processed=told)))
    assert peer.sent_counts._reported == {}


# --- what is parked ---------------------------------------------------------------------------------------------------


def body(update_bytes: bytes) -> bytes:
    return update_pb2.BatchBody(updates=[update_bytes], schema_ids=[1], tx_number=[1]).SerializeToString()


def row_of_many_entries() -> bytes:
    value = update_pb2.Value(entries=update_pb2.Entries(names=[b""] * 70_000)).SerializeToString()
    insert = update_pb2.Update(op=update_pb2.INSERT)
    return insert.SerializeToString() + b"\x1a" + varint(len(value)) + value


NO_COLUMNS = Schema("t", (), ())
# What is parked, and why it is not opened.
PARKED: dict[str, tuple[bytes, bytes, str]] = {
    "updates": (NO_COLUMNS.canonical, b"\x0a\x00" * 500_000, "fields|a few"),
    "values": (NO_COLUMNS.canonical, body(b"\x1a\x00" * 500_000), "fields|a few"),
    "entries": (NO_COLUMNS.canonical, body(row_of_many_entries()), "fields|a few"),
    "places": (
        NO_COLUMNS.canonical, update_pb2.BatchBody(tx_number=range(1, 500_000)).SerializeToString(), "fields|a few"
    ),
    "columns": (b"\x1a\x00" * 200_000, body(b""), "fields|a few"),
    "no operation": (
        NO_COLUMNS.canonical,
        body_of([Change(NO_COLUMNS, update_pb2.Update().SerializeToString())], number=5),
        "operation 0 is not known",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PARKED)
def test_a_hostile_update_is_not_opened(what: str) -> None:
    schema, update, why = PARKED[what]
    told, _ = letter(5)
    frame = push_pb2.Park(update_id=told.id, body=update, schema=schema, place=place_to_message(told.place))
    arrived = Arriving().take(frame, "app/log")
    assert arrived is not None
    with pytest.raises(ProtocolError, match=why) as caught:
        open_letter(arrived, "app/log")
    assert len(str(caught.value)) < 300


def test_schemas_of_peers_are_not_kept_for_ever() -> None:
    before = _remembered.cache_info().currsize
    for number in range(5):
        Schema.from_canonical(Schema("t" * 10_000 + str(number), (), ()).canonical)
    assert _remembered.cache_info().currsize == before


# --- a running publisher, and an application that does no harm -----------------------------------------------------------  # noqa: E501


@asynccontextmanager
async def scene(world: World, **mad: Any) -> AsyncIterator[tuple[Publisher, ScriptedSubscriber, ScriptedSubscriber]]:
    """Two applications over one log: ``mad`` and ``good``, both with an open flow."""
    world.application("mad", on_failure="park")
    world.application("good", on_failure="park")
    world.commit("a")
    async with (
        scripted_subscriber("mad", "m1", **mad) as one,
        scripted_subscriber("good", "g1") as other,
        world.publisher() as publisher,
    ):
        for subscriber in (one, other):
            await world.register(subscriber)
            await subscriber.hears("hello")
        yield publisher, one, other


async def opens(subscriber: ScriptedSubscriber) -> push_pb2.Assign:
    return await subscriber.accepts(await subscriber.hears_later("assign"))


def stream_of(publisher: Publisher, name: str) -> SubscriberStream:
    return next(stream for stream in publisher.assigner.streams() if stream.info.id == name)


async def unharmed(world: World, good: ScriptedSubscriber, publisher: Publisher) -> None:
    """The other application's stream is the same one, and carries what is committed now."""
    connections = good.connections
    world.commit("b")
    while True:
        frame = await good.hears_later("batch")
        if any(one.key == (b"b",) for one in good.updates(frame)):
            break
    assert good.connections == connections == 1
    assert not stream_of(publisher, "g1").traffic.refused


def piece(assign: push_pb2.Assign, size: int) -> push_pb2.Park:
    return push_pb2.Park(flow=assign.flow, epoch=assign.epoch, update_id="test:5:0", body=bytes(size), more=True)


async def test_unfinished_updates_are_held_against_one_budget(world: World) -> None:
    world.settings["max_update_bytes"] = 1 << 20
    async with scene(world) as (publisher, mad, good):
        mine, theirs = await opens(mad), await opens(good)
        room = publisher.parking_room
        assert room.most == 3 << 20
        await good.says(park=piece(theirs, 1 << 20))
        await eventually(lambda: room.used == 1 << 20, "begun")
        for _ in range(3):
            await mad.says(park=piece(mine, 1 << 20))
        goodbye = (await mad.hears_later("goodbye")).goodbye
        assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
        assert "more than of any other peer" in goodbye.message
        assert stream_of(publisher, "m1").traffic.refused == {Refusal.MEMORY: 1}
        assert room.used == 1 << 20  # what the other one has begun
        await unharmed(world, good, publisher)


async def test_a_small_update_goes_through_while_a_hostile_one_fills_the_budget(world: World) -> None:
    world.settings["max_update_bytes"] = 1 << 20
    async with scene(world) as (publisher, mad, good):
        mine, theirs = await opens(mad), await opens(good)
        for _ in range(3):
            await mad.says(park=piece(mine, (1 << 20) - 1))
        await eventually(lambda: publisher.parking_room.used > 2 << 20, "filled")
        [update] = good.updates(await good.hears_later("batch"))
        for frame in park_frames(update.id, wrap(update), place_of(update), "no", 1 << 20):
            frame.flow, frame.epoch = theirs.flow, theirs.epoch
            await good.says(park=frame)
        assert (await good.hears_later("parked")).parked.refused == ""
        await mad.hears_later("goodbye")
        await unharmed(world, good, publisher)
        assert publisher.parking_room.used == 0


async def test_a_subscriber_that_breaks_the_protocol_loses_its_stream_with_a_reason(world: World) -> None:
    async with scene(world) as (publisher, mad, good):
        mine = await opens(mad)
        await opens(good)
        await mad.says(
            progress=push_pb2.Progress(flow=mine.flow, epoch=mine.epoch, processed=[push_pb2.Processed()] * 100_000)
        )
        goodbye = (await mad.hears_later("goodbye")).goodbye
        assert "progress.processed: 100000 entries" in goodbye.message
        stream = stream_of(publisher, "m1")
        assert stream.traffic.refused == {Refusal.PROTOCOL: 1}
        await unharmed(world, good, publisher)
        cause = stream.problem.text
        assert cause.startswith(("progress.processed", "subscriber", "dial")) or not cause


async def test_frames_of_a_former_epoch_are_paced(world: World) -> None:
    """They are legal, so they are slowed down, not refused: the loop has its turn in between."""
    async with scene(world) as (publisher, mad, good):
        mine = await opens(mad)
        await opens(good)
        stale = Frame(progress=push_pb2.Progress(flow=mine.flow, epoch=mine.epoch - 1 if mine.epoch > 1 else 0))
        for _ in range(2):
            await mad.says_bytes(message([stale] * 8000))
        traffic = stream_of(publisher, "m1").traffic
        await eventually(lambda: traffic.rests, "slowed down")
        await unharmed(world, good, publisher)
        assert not traffic.refused


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage of the tests before is not collected, and charged, while a test counts what one frame costs."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_a_new_connection_buys_no_further_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a subscriber may cause at once is of all its connections: who hangs up after it has no more of it."""
    monkeypatch.setattr(Reading, "rate", 1000.0)  # so that the time that this takes gives nothing back
    beat = Frame(heartbeat=push_pb2.Heartbeat())
    async with scene(world) as (publisher, mad, good):

        async def opens_again(mine: push_pb2.Assign) -> push_pb2.Assign:
            await mad.says(failed=push_pb2.Failed(flow=mine.flow, epoch=mine.epoch, reason=push_pb2.Failed.RESEND))
            return await opens(mad)

        await opens(good)
        traffic = stream_of(publisher, "m1").traffic
        mine = await opens(mad)
        before, sent, portion = traffic.charged, 0, 500  # measured branches make each cost three times as much
        while sent == 0 or traffic.charged < _AT_ONCE / 2:  # in portions, since what one costs varies
            await mad.says_bytes(message([beat] * portion))
            mine = await opens_again(mine)  # so everything before it was read
            assert not traffic.rests
            sent += portion
            of_one = (traffic.charged - before) / sent  # on this machine
            portion = int(_AT_ONCE / 16 / of_one)
        much = message([beat] * int(0.9 * _AT_ONCE / of_one))  # fits into a new allowance, and not into this one
        mad.hang_up()
        await opens(mad)
        await mad.says_bytes(much)
        await eventually(lambda: traffic.rests, "slowed down")
        await unharmed(world, good, publisher)


async def test_a_flow_that_is_given_away_again_and_again_waits_in_between(world: World) -> None:
    async with scene(world) as (publisher, mad, good):
        await opens(good)
        mine = await opens(mad)
        flow = publisher.assigner.flows["mad", "log.t"]
        for _ in range(9):
            await mad.says(failed=push_pb2.Failed(flow=mine.flow, epoch=mine.epoch, reason=push_pb2.Failed.RESEND))
            mine = await opens(mad)
        assert flow.holding.spacing.until > 0
        await unharmed(world, good, publisher)


async def test_a_subscriber_without_a_welcome_is_not_waited_for(world: World) -> None:
    world.settings["heartbeat"] = 0.2
    world.application("mad")
    world.commit("a")
    async with scripted_subscriber("mad", "m1") as mad, world.publisher() as publisher:
        mad.welcomes = False
        await world.register(mad)
        await mad.hears("hello")
        traffic = stream_of(publisher, "m1").traffic

        async def refused() -> bool:
            await mad.says_bytes(b"")
            return bool(traffic.refused)

        while not await refused():
            pass
        assert traffic.refused == {Refusal.SILENT: 1}


async def test_unread_answers_have_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_MOST_ANSWERS", 100)
    async with scene(world) as (publisher, mad, good):
        await opens(mad)
        await opens(good)
        stream, flow = stream_of(publisher, "m1"), publisher.assigner.flows["mad", "log.t"]
        for _ in range(101):
            stream.parked(flow, flow.holding.epoch, "test:5:0", "full")
        assert stream.traffic.refused == {Refusal.UNREAD: 1}
        await unharmed(world, good, publisher)


async def test_a_round_of_a_stream_holds_little_however_many_flows_it_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher took a quarter of a MiB of each flow in one round. With a thousand flows that was a quarter of a
    GiB per stream.
    """
    rounds: list[int] = []

    class Noted(Messages):
        def take(self) -> Iterator[bytes]:
            rounds.append(self.bytes)
            return super().take()

    monkeypatch.setattr(outgoing_module, "Messages", Noted)
    world.application("mad")
    tables = [f"t{number}" for number in range(12)]
    for table in tables:
        world.commit("a", table=table)
    async with scripted_subscriber("mad", "m1") as mad, world.publisher() as publisher:
        await world.register(mad)
        await mad.hears("hello")
        for _ in tables:
            await mad.accepts(await mad.hears_later("assign"), credit=1 << 30)
        await eventually(lambda: len(publisher.states.lead_flows()) == len(tables), "live")
        stream = stream_of(publisher, "m1")
        allowed = stream._outgoing._may_send
        stream._outgoing._may_send = lambda: False
        for table in tables:
            world.source.commit([(Op.UPSERT, table, b"k", {"value": bytes(200_000)})])
        lead = publisher.log.fleet.lead
        assert lead is not None
        await eventually(lambda: lead.buffer.place == world.source.latest().order, "read")
        stream._outgoing._may_send = allowed
        stream.wake()
        heard = 0
        while heard < 2 * len(tables):
            heard += (await mad.hears_later("batch")) is not None
    assert (1 << 20) <= max(rounds) <= (1 << 20) + (256 << 10)


async def test_a_compressed_message_is_bounded_by_its_real_size(world: World) -> None:
    """A hundred KiB on the network, a hundred MiB in memory."""
    world.application("mad")
    world.commit("a")

    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(bytes(100 << 20))
        async for _ in requests:
            pass

    server = grpc.aio.server(
        options=[("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)], compression=grpc.Compression.Gzip
    )
    handler: Any = grpc.stream_stream_rpc_method_handler(serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("wormhole.wire.v1.Subscriber", {"Push": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        mad = ScriptedSubscriber("mad", "m1")
        mad.address = f"127.0.0.1:{port}"
        async with world.publisher() as publisher:
            await world.register(mad)
            await eventually(publisher.assigner.streams, "dialled")
            await eventually(lambda: "larger than max" in stream_of(publisher, "m1").problem.text, "refused")
    finally:
        await server.stop(0)


async def test_an_application_is_dialled_at_so_many_subscribers_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from publisher.flows import assigner

    monkeypatch.setattr(assigner, "MOST_SUBSCRIBERS", 3)
    world.application("mad")
    async with world.publisher() as publisher:
        for number in range(9):
            one = ScriptedSubscriber("mad", f"m{number}")
            one.address = "127.0.0.1:1"
            await world.register(one)
        await eventually(lambda: len(publisher.assigner.streams()) == 3, "dialled")
