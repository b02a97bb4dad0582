"""A stream of the release before, recorded: a publisher, killed and started again, sent what a subscriber lacked, which
parked one update.

The present publisher resumes from the same folder and meets the recorded subscriber; the present subscriber meets the
recorded publisher.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from publisher import daemon
from publisher.stores.markers import LocalMarkerStore
from subscriber_sdk import Subscriber, Update, serve
from tests.support.dialled import dialled
from tests.support.ports import free_port
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.config import parse
from wormhole.model.position import Datamarker
from wormhole.model.values import Op
from wormhole.ports.dead_letters import open_parcel
from wormhole.push.session import MAX_VERSION
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import push_pb2, update_pb2

LOG = ("shop", "main", "db1")
FLOW = ("cache", "db1")
VALUES = [*({"value": b"second %d" % number} for number in range(5)), None, {"value": b"x" * 3000}]


class Recording:
    """The frames of each side, in order."""

    def __init__(self, file: Path) -> None:
        given = json.loads(file.read_text())
        self.updates: list[list[str]] = given["updates"]
        self.publisher: list[push_pb2.PublisherFrame] = []
        self.subscriber: list[push_pb2.SubscriberFrame] = []
        for side, data in given["messages"]:
            message = base64.b64decode(data)
            if side == "publisher":
                self.publisher += push_pb2.PublisherMessage.FromString(message).frames
            else:
                self.subscriber += push_pb2.SubscriberMessage.FromString(message).frames
        # 1d498d0d sends the same frames, in version 3.
        hello, welcome = self.sent("hello")[0].hello, self.answered("welcome")[0].welcome
        hello.min_version = hello.max_version = welcome.version = MAX_VERSION

    def sent(self, kind: str) -> list[push_pb2.PublisherFrame]:
        return [frame for frame in self.publisher if frame.WhichOneof("kind") == kind]

    def answered(self, kind: str) -> list[push_pb2.SubscriberFrame]:
        return [frame for frame in self.subscriber if frame.WhichOneof("kind") == kind]

    @property
    def reached(self) -> Datamarker:
        """What was acknowledged last."""
        return marker_from_message(self.answered("ack")[-1].ack.marker)


@pytest.fixture
def recording(before: Path) -> Recording:
    return Recording(before / "wire.json")


def line_of(update: Update) -> list[str]:
    """An update as the recorded subscriber noted it."""
    (key,) = update.key
    assert isinstance(key, bytes)
    return [update.id, update.op.value, update.table, key.decode()]


class Handler(Subscriber):
    """As the recorded one: one row is bad."""

    def __init__(self) -> None:
        self.updates: list[list[str]] = []
        self.values: list[object] = []

    async def on_update(self, update: Update) -> None:
        if update.key == (b"bad",):
            raise ValueError("this row is bad")
        if line_of(update) not in self.updates:  # a batch with a bad row comes twice
            self.updates.append(line_of(update))
            self.values.append(update.after)


def without_later_fields(body: bytes) -> bytes:
    """The body as a receiver of before reads it: `ended` came later."""
    message = update_pb2.BatchBody.FromString(body)
    message.ClearField("ended")
    return message.SerializeToString()


async def test_a_subscriber_takes_what_a_publisher_of_before_sends(recording: Recording) -> None:
    handler = Handler()
    (assign,) = recording.sent("assign")
    serving = serve(handler, application="cache", id="a", listen=f"127.0.0.1:{free_port()}", retry=1)
    async with serving as running, dialled(running.address) as publisher:
        await publisher.send(*recording.sent("hello"))
        assert [await publisher.next("welcome")] == recording.answered("welcome")
        await publisher.send(assign)
        accepted, expected = (await publisher.next("accepted")).accepted, recording.answered("accepted")[0].accepted
        expected.life = accepted.life  # a number of the process's own
        assert accepted == expected
        await publisher.send(*(one for one in recording.publisher if one.WhichOneof("kind") in {"schema", "batch"}))
        park, expected_park = (await publisher.next("park")).park, recording.answered("park")[0].park
        park.body = without_later_fields(park.body)
        assert park == expected_park
        await publisher.send(*recording.sent("parked"))
        await publisher.send(*recording.sent("datamarker"))
        ack = (await publisher.next("ack")).ack
        assert marker_from_message(ack.marker) == recording.reached
        assert (ack.flow, ack.epoch) == (assign.assign.flow, assign.assign.epoch)
    assert (handler.updates, handler.values) == (recording.updates, VALUES)


CONFIG = """
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder}/state"
heartbeat = "500ms"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder}/store"
[applications.cache]
dataset = "shop"
start = "earliest"
on_failure = "park"
subscribers = {{ a = "{address}" }}
[applications.search]
dataset = "shop"
start = "earliest"
on_failure = "park"
subscribers = {{ b = "127.0.0.1:9" }}
"""


async def test_a_publisher_goes_on_where_one_of_before_was_killed(before: Path, recording: Recording) -> None:
    async with scripted_subscriber("cache", "a") as subscriber:
        subscriber.welcomes = False
        config = parse(CONFIG.format(folder=before / "rocksdb", address=subscriber.address), "test")
        serving = asyncio.create_task(daemon.serve(config, *LOG))
        try:
            await take_all(subscriber, recording)
            serving.cancel()
            await subscriber.hears_later("revoke")  # it stops only when it has all that the subscriber acknowledged
            await subscriber.says_bytes(message(recording, "released"))
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    await asyncio.to_thread(check_stored, before, recording)


async def take_all(subscriber: ScriptedSubscriber, recording: Recording) -> None:
    hello, expected = (await subscriber.hears("hello")).hello, recording.sent("hello")[0].hello
    expected.publisher, expected.owner = hello.publisher, hello.owner  # the process and its lock
    assert hello == expected
    await subscriber.says_bytes(message(recording, "welcome"))
    assigned = recording.sent("assign")
    assigned[0].assign.acknowledged = True  # the recorded publisher did not report it
    assert [await subscriber.hears("assign")] == assigned
    await subscriber.says_bytes(message(recording, "accepted"))
    updates: list[Update] = []
    while len(updates) < len(recording.updates) + 1:  # and the one that was parked
        updates += subscriber.updates(await subscriber.hears("batch"))
    bad = updates.pop(5)
    assert (bad.id, bad.key, bad.after) == (recording.answered("park")[0].park.update_id, (b"bad",), {"value": b"3"})
    assert [line_of(one) for one in updates] == recording.updates
    assert [one.after for one in updates] == VALUES
    assert (updates[5].op, updates[5].key_end) == (Op.DELETE_RANGE, (b"key-3",))
    await subscriber.says_bytes(message(recording, "park"))
    assert [await subscriber.hears_later("parked")] == recording.sent("parked")
    await subscriber.says_bytes(message(recording, "progress"))
    assert [await subscriber.hears_later("datamarker")] == recording.sent("datamarker")
    await subscriber.says_bytes(message(recording, "report", "ack"))


def message(recording: Recording, *kinds: str) -> bytes:
    """What the recorded subscriber said, of these kinds."""
    frames = [frame for frame in recording.subscriber if frame.WhichOneof("kind") in kinds]
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


def check_stored(before: Path, recording: Recording) -> None:
    store = LocalMarkerStore(before / "rocksdb/state/shop/main/db1")
    store.open()
    try:
        stored = store.load()[FLOW]
        assert (stored.marker, stored.epoch) == (recording.reached, 2)
        earlier, parked = store.dead_letters().load(FLOW)
        assert [earlier.id.split(":", 1)[1], parked.id] == ["6:1", recording.answered("park")[0].park.update_id]
        assert open_parcel(store.dead_letters().read(FLOW, parked.id)).after == {"value": b"3"}
    finally:
        store.close()
