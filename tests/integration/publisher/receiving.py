"""What a scripted subscriber does with the one flow of most tests."""

from __future__ import annotations

from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.wire.v1 import push_pb2

KEY = ("app", "log.t")


async def taken(subscriber: ScriptedSubscriber) -> push_pb2.Assign:
    """The subscriber answers hello and takes the one flow that it is given."""
    await subscriber.hears("hello")
    return await subscriber.accepts(await subscriber.hears("assign"))


def keys(subscriber: ScriptedSubscriber, frame: push_pb2.PublisherFrame) -> list[object]:
    return [update.key[0] for update in subscriber.updates(frame)]
