"""Every change that operators can make, with a real publisher, a RocksDB that another process writes, and a real
subscriber."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from subscriber_sdk import Subscriber, SubscriberOptions, Update, serve
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from tests.support.publisher_process import QUICK, PublisherProcess
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import Fatal, UsageError
from wormhole.wire.v1 import admin_pb2


class App(Subscriber):
    """Remembers what it was given; fails at the keys in ``poison``."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.poison: set[bytes] = set()

    async def on_update(self, update: Update) -> None:
        key = update.key[0]
        assert isinstance(key, bytes)
        if key in self.poison:
            raise RuntimeError(f"cannot bear {key!r}")
        self.keys.append(key)


class World:
    """A database, a publisher of it, and what an operator asks that about its flow."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.writer = RocksWriter(folder / "store")
        application = f"""[applications.app]
dataset = "shop"
start = "earliest"
retry = {{ attempts = 1 }}
subscribers = {{ s1 = "127.0.0.1:{self.port}" }}"""
        source = f'source = "rocksdb://{self.writer.path}"'
        self.publisher = PublisherProcess(folder, source, application, publisher=f'{QUICK}\nhandler_timeout = "5s"')
        self.change = partial(self.publisher.change, "app")

    async def becomes(self, true: Callable[[admin_pb2.FlowStatus], object]) -> admin_pb2.FlowStatus:
        return await self.publisher.becomes("app", true)

    def subscriber_state(self) -> str:
        answer = self.publisher.answer()
        assert answer is not None
        assert answer.status is not None
        return answer.status.subscribers[0].state

    def close(self) -> None:
        self.publisher.kill()
        self.writer.exit()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await asyncio.to_thread(World, tmp_path)
    try:
        await asyncio.to_thread(made.publisher.start)
        yield made
    finally:
        await asyncio.to_thread(made.close)


async def test_an_operator_walks_through_every_change(world: World) -> None:
    app = App()

    async def puts(*keys: bytes) -> None:
        for key in keys:
            await asyncio.to_thread(world.writer.put, key, b"v")

    options: SubscriberOptions = {
        "coordinator": str(world.publisher.config),
        "id": "s1",
        "listen": f"127.0.0.1:{world.port}",
    }
    async with serve(app, application="app", **options):
        await puts(b"k1", b"k2", b"k3")
        await eventually(lambda: app.keys == [b"k1", b"k2", b"k3"], "delivered")

        # Paused, and still so when the publisher was killed and started again.
        await world.becomes(lambda flow: not flow.lag_bytes)
        await asyncio.to_thread(world.change, "pause")
        paused = await world.becomes(lambda flow: flow.state == "paused")
        await puts(b"k4")
        await asyncio.to_thread(world.publisher.kill)
        await asyncio.to_thread(world.publisher.start)
        again = await world.becomes(lambda flow: flow.paused and flow.cause.startswith("paused by maria@ops"))
        assert (again.paused, again.epoch) == (paused.paused, paused.epoch)
        with pytest.raises(Fatal, match="paused already"):
            await asyncio.to_thread(world.change, "pause")
        assert app.keys == [b"k1", b"k2", b"k3"]
        await asyncio.to_thread(world.change, "resume")
        # What was acknowledged in the last second before the kill may come again.
        await eventually(lambda: app.keys[-1] == b"k4", "goes on")
        assert list(dict.fromkeys(app.keys)) == [b"k1", b"k2", b"k3", b"k4"]
        app.keys.clear()

        # A handler that gives up: resumed it fails again, and its update can be skipped.
        app.poison = {b"bad"}
        await puts(b"bad", b"k5")
        stands = await world.becomes(lambda flow: flow.halted_at)
        await asyncio.to_thread(world.change, "resume")
        stands = await world.becomes(lambda flow: flow.halted_at and flow.epoch > stands.epoch)
        await asyncio.to_thread(world.change, "skip", update_id=stands.halted_at)
        await eventually(lambda: app.keys[-1:] == [b"k5"], "passed over")
        assert b"bad" not in app.keys
        await world.becomes(lambda flow: not flow.skip and not flow.lag_bytes)

        # Back, by place and by time.
        app.poison.clear()
        app.keys.clear()
        preview = await asyncio.to_thread(world.change, "set_marker", preview=True, place="earliest")
        assert "delivered again" in preview.notes[0]
        assert not app.keys
        await asyncio.to_thread(world.change, "set_marker", place="earliest")
        everything = [b"k1", b"k2", b"k3", b"k4", b"bad", b"k5"]
        await eventually(lambda: app.keys == everything, "all again, in order")
        await world.becomes(lambda flow: not flow.lag_bytes)
        await asyncio.to_thread(world.change, "set_marker", at_s=time.time())
        with pytest.raises(Fatal, match=r"the log begins at .* mass replay"):
            await asyncio.to_thread(world.change, "set_marker", at_s=1.0)
        with pytest.raises(UsageError):
            await asyncio.to_thread(world.change, "set_marker", place="yesterday")
        with pytest.raises(Fatal, match="no loss of log"):
            await asyncio.to_thread(world.change, "accept_loss")
        with pytest.raises(Fatal, match="subscribers of app are there: s1"):
            await asyncio.to_thread(world.change, "forget")

    # Nobody is there: the marker can be set all the same, and the flow can begin anew.
    app.keys.clear()
    async with patience():
        while await asyncio.to_thread(world.subscriber_state) != "unreachable":  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    await asyncio.to_thread(world.change, "forget")
    await asyncio.to_thread(world.change, "set_marker", place="latest")
    await puts(b"k6")
    async with serve(app, application="app", **options):
        await eventually(lambda: app.keys == [b"k6"], "begins at the place that was set meanwhile")
    done = ["pause", "resume", "resume", "skip", "set-marker", "set-marker", "forget", "set-marker"]
    assert await asyncio.to_thread(world.publisher.history) == done
