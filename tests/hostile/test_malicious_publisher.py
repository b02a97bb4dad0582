"""What a publisher with a certificate, or one on loopback, can do to a subscriber at worst: docs/security.md, docs/subscriber.md.

Each attack is done over real gRPC, with real certificates where it takes one. The bounds count what is held, never the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import Subscriber, Update, serve
from subscriber_sdk.runner import Running
from subscriber_sdk.testing import frames, marker_at
from tests.support.certificates import Authority
from tests.support.dialled import Dialler, dialled
from tests.support.ports import free_port
from wormhole.config import TlsFiles, parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.errors import ConfigError
from wormhole.wire.v1 import push_pb2

CONFIG = """
version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///tmp/none"
host = "h"
[datasets.users.copies.main.logs.db2]
source = "rocksdb:///tmp/none"
host = "h"
[applications.app]
dataset = "shop"
start = "latest"
"""


class Recorder(Subscriber):
    def __init__(self) -> None:
        self.keys: list[Any] = []

    async def on_update(self, update: Update) -> None:
        self.keys.append(update.key[0])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(recorder: Recorder, **options: Any) -> AsyncIterator[Running]:
    given = {"application": "app", "id": "one", "listen": f"127.0.0.1:{free_port()}", **options}
    async with serve(recorder, **given) as running:
        yield running


@asynccontextmanager
async def coordinated(recorder: Recorder, tls: TlsFiles, publishers: Any) -> AsyncIterator[tuple[Running, Any]]:
    """A subscriber whose dataset the coordinator knows."""
    coordinator = MemoryCoordinator(MemoryWorld(parse(CONFIG, "test.toml")))
    await coordinator.start()
    try:
        async with serving(recorder, tls=tls, publishers=publishers, coordinator=coordinator) as running:
            yield running, coordinator
    finally:
        await coordinator.stop()


async def parting(publisher: Dialler) -> push_pb2.Goodbye:
    return (await publisher.next("goodbye")).goodbye


# --- who may push --------------------------------------------------------------------------------------------------------


async def test_a_subscriber_with_tls_does_not_start_before_it_names_its_publishers(authority: Authority) -> None:
    """It would take updates from every holder of a certificate: from another subscriber's host too."""
    with pytest.raises(ConfigError) as caught:
        async with serving(Recorder(), tls=await asyncio.to_thread(authority.issue, "one")):
            pass
    assert 'add publishers=["NAME"] (WORMHOLE_PUBLISHERS=NAME)' in str(caught.value)
    assert "wormholectl doctor" in str(caught.value)


async def test_a_subscribers_certificate_cannot_push(authority: Authority) -> None:
    one, other, db1 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "cache-2", "db1")]
    recorder = Recorder()
    async with serving(recorder, tls=one, publishers=["db1"]) as running:
        async with dialled(running.address, other) as thief:
            await thief.send(frames.hello("app", "one"), frames.assign(1, 1, "app", "s", marker_at(0)))
            goodbye = await parting(thief)
        assert goodbye.reason == push_pb2.Goodbye.NOT_ALLOWED
        assert "cache-2" in goodbye.message
        assert "app/one takes it from db1" in goodbye.message
        async with dialled(running.address, db1) as publisher:
            await publisher.open()
            await publisher.push(1, 7)
            await publisher.next("ack")
    assert recorder.keys == [7]


@pytest.mark.parametrize(
    ("publishers", "claimed", "reason"),
    [
        (["db1", "db2"], "users", push_pb2.Goodbye.WRONG_ADDRESS),
        (["db1", "db2"], "", push_pb2.Goodbye.WRONG_ADDRESS),
        ({"shop": ["db1"], "users": ["db2"]}, "shop", push_pb2.Goodbye.NOT_ALLOWED),
    ],
)
async def test_a_publisher_of_another_dataset_takes_no_flow_over(
    authority: Authority, publishers: Any, claimed: str, reason: push_pb2.Goodbye.Reason
) -> None:
    one, db1, db2 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "db1", "db2")]
    recorder = Recorder()
    async with coordinated(recorder, one, publishers) as (running, _), dialled(running.address, db1) as publisher:
        await publisher.open(dataset="shop")
        await publisher.push(1, 1)
        await publisher.next("ack")
        async with dialled(running.address, db2) as thief:
            hello = frames.hello("app", "one", dataset=claimed, owner="thief")
            await thief.send(hello, frames.assign(1, 9, "app", "s", marker_at(0)))
            assert (await parting(thief)).reason == reason
        await publisher.push(2, 2)  # its flow was not cut off
        await publisher.next("ack")
    assert recorder.keys == [1, 2]


# --- epochs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1 << 63, (1 << 64) - 1])
async def test_an_epoch_that_nothing_exceeds_keeps_no_publisher_away(epoch: int) -> None:
    recorder = Recorder()
    async with serving(recorder) as running:
        async with dialled(running.address) as thief:
            await thief.send(frames.hello("app", "one"), frames.assign(1, epoch, "app", "s", marker_at(0)))
            goodbye = await parting(thief)
            assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
            assert f"assign.epoch: {epoch}; epochs are below 2^63" in goodbye.message
        async with dialled(running.address) as publisher:
            await publisher.open(epoch=2)
            await publisher.push(1, 7, epoch=2)
            await publisher.next("ack")
    assert recorder.keys == [7]
