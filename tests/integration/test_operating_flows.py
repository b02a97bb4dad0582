"""Every change that operators can make, with a real publisher, a RocksDB that another process writes, and a real
subscriber."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from subscriber_sdk import Subscriber, Update, serve
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.model.errors import Fatal, UsageError
from wormhole.wire.v1 import admin_pb2
from wormholectl import admin_client
from wormholectl.admin_client import Answer

# gRPC joins its poller thread when its last object goes, which would count as blocking whichever test that falls into.
grpc.aio.init_grpc_aio()


FLOW = "app/db1"
_RUN = "from tests.system.harness.child import die_with_parent as d; d(); from wormholectl import main; main()"


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
    """A database, a publisher of it in a process of its own, and what an operator asks that."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.config = folder / "shop.toml"
        self.port = free_port()
        self.writer = RocksWriter(folder / "store")
        self.publisher = Process(
            "publisher",
            ["-c", _RUN, "publisher", "run", "-c", str(self.config), "--log", "shop/main/db1"],
            folder,
        )
        self.config.write_text(
            f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{self.state}"
heartbeat = "500ms"
grace_period = "1s"
handler_timeout = "5s"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{self.writer.path}"
[applications.app]
dataset = "shop"
start = "earliest"
retry = {{ attempts = 1 }}
subscribers = {{ s1 = "127.0.0.1:{self.port}" }}
"""
        )

    def answer(self) -> Answer | None:
        """What the publisher tells, once it serves."""
        ready = read_ready(ready_path(self.state, "shop", "main", "db1"))
        if ready is None:
            assert self.publisher.alive, self.publisher.tail()
            return None
        return Answer(ready.admin, admin_client.describe(ready.admin), state_dir=self.state)

    def flow(self) -> admin_pb2.FlowStatus | None:
        answer = self.answer()
        flows = () if answer is None or answer.status is None else answer.status.flows
        return next((flow for flow in flows if flow.flow == FLOW), None)

    def change(self, what: str, *, preview: bool = False, **fields: Any) -> admin_pb2.ChangeReply:
        answer = self.answer()
        assert answer is not None
        asked = admin_pb2.ChangeRequest(who="maria@ops", flow=FLOW, preview=preview)
        getattr(asked, what).SetInParent()
        for name, value in fields.items():
            setattr(getattr(asked, what), name, value)
        return admin_client.change(answer, asked)

    def subscriber_state(self) -> str:
        answer = self.answer()
        assert answer is not None
        assert answer.status is not None
        return answer.status.subscribers[0].state

    async def becomes(self, what: str, true: Callable[[admin_pb2.FlowStatus], object]) -> admin_pb2.FlowStatus:
        """Wait until the flow is so."""
        found: list[admin_pb2.FlowStatus] = []

        def so() -> bool:
            flow = self.flow()
            found[:] = [] if flow is None or not true(flow) else [flow]
            return bool(found)

        await eventually_in_thread(so)
        return found[0]

    def history(self) -> list[str]:
        lines = (self.state / "history.jsonl").read_text().splitlines()
        return [json.loads(line)["what"] for line in lines]

    def close(self) -> None:
        self.publisher.kill()
        self.writer.exit()


async def eventually_in_thread(true: Callable[[], bool]) -> None:
    async with patience():
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - another process tells no event
            await asyncio.sleep(0.05)


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

    options = {"coordinator": str(world.config), "id": "s1", "listen": f"127.0.0.1:{world.port}"}
    async with serve(app, application="app", **options):
        await puts(b"k1", b"k2", b"k3")
        await eventually(lambda: app.keys == [b"k1", b"k2", b"k3"], "delivered")

        # Paused, and still so when the publisher was killed and started again.
        await world.becomes("acknowledged", lambda flow: not flow.lag_bytes)
        await asyncio.to_thread(world.change, "pause")
        paused = await world.becomes("paused", lambda flow: flow.state == "paused")
        await puts(b"k4")
        await asyncio.to_thread(world.publisher.kill)
        await asyncio.to_thread(world.publisher.start)
        again = await world.becomes("paused", lambda flow: flow.paused and flow.cause.startswith("paused by maria@ops"))
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
        stands = await world.becomes("stands", lambda flow: flow.halted_at)
        await asyncio.to_thread(world.change, "resume")
        stands = await world.becomes("stands again", lambda flow: flow.halted_at and flow.epoch > stands.epoch)
        await asyncio.to_thread(world.change, "skip", update_id=stands.halted_at)
        await eventually(lambda: app.keys[-1:] == [b"k5"], "passed over")
        assert b"bad" not in app.keys
        await world.becomes("behind it", lambda flow: not flow.skip and not flow.lag_bytes)

        # Back, by place and by time.
        app.poison.clear()
        app.keys.clear()
        preview = await asyncio.to_thread(world.change, "set_marker", preview=True, place="earliest")
        assert "delivered again" in preview.notes[0]
        assert not app.keys
        await asyncio.to_thread(world.change, "set_marker", place="earliest")
        everything = [b"k1", b"k2", b"k3", b"k4", b"bad", b"k5"]
        await eventually(lambda: app.keys == everything, "all again, in order")
        await world.becomes("acknowledged", lambda flow: not flow.lag_bytes)
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
    await eventually_in_thread(lambda: world.subscriber_state() == "unreachable")
    await asyncio.to_thread(world.change, "forget")
    await asyncio.to_thread(world.change, "set_marker", place="latest")
    await puts(b"k6")
    async with serve(app, application="app", **options):
        await eventually(lambda: app.keys == [b"k6"], "begins at the place that was set meanwhile")
    done = ["pause", "resume", "resume", "skip", "set-marker", "set-marker", "forget", "set-marker"]
    assert await asyncio.to_thread(world.history) == done
