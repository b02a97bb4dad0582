"""A mass replay by hand against a real publisher of a RocksDB that another process writes, with a real subscriber:
killed half way, silent, and beyond what the log holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from subscriber_sdk import DataLoss, LossDecision, Subscriber, SubscriberOptions, Update, serve
from tests.integration.test_operating_flows import World
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.replaying import ReplayClient
from wormhole.host.local_admin import token_path
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import admin_pb2

FLOW = "app/db1"


class App(Subscriber):
    """Remembers what it was given, and what was missing; halts there as the default does."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.losses: list[DataLoss] = []

    async def on_update(self, update: Update) -> None:
        key = update.key[0]
        assert isinstance(key, bytes)
        self.keys.append(key)

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        self.losses.append(loss)
        return LossDecision.HALT


class Asked:
    """The publisher of ``world``, wherever it listens now, over gRPC."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, request: admin_pb2.ReplayRequest) -> admin_pb2.ReplayReply:
        answer = await asyncio.to_thread(self._world.publisher.answer)
        assert answer is not None
        token = (await asyncio.to_thread(token_path(self._world.publisher.state).read_text)).strip()
        metadata = (("authorization", f"Bearer {token}"),) if request.HasField("begin") or not request.ticket else ()
        async with grpc.aio.insecure_channel(answer.address) as channel:
            call: Any = channel.unary_unary("/wormhole.wire.v1.Admin/Replay")
            return admin_pb2.ReplayReply.FromString(
                await call(request.SerializeToString(), metadata=metadata, timeout=PATIENCE_S)
            )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await asyncio.to_thread(World, tmp_path)
    source = f'source = "rocksdb://{made.writer.path}"\n'
    config = made.publisher.config
    config.write_text(config.read_text().replace(source, f'{source}pin_budget = "64KiB"\n'))
    try:
        await asyncio.to_thread(made.publisher.start)
        yield made
    finally:
        await asyncio.to_thread(made.close)


async def code_of(asked: object) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked  # type: ignore[misc]
    return caught.value.code()


async def test_a_flow_is_replayed_with_everything_that_may_happen_to_it(world: World) -> None:
    app = App()

    async def puts(*keys: bytes) -> None:
        for key in keys:
            await asyncio.to_thread(world.writer.put, key, b"v")

    async def acknowledged(key: bytes) -> Datamarker:
        await eventually(lambda: app.keys[-1:] == [key], "delivered")
        return marker_from_message((await world.becomes(lambda flow: not flow.lag_bytes)).marker)

    async def restarts() -> None:
        await asyncio.to_thread(world.publisher.kill)
        await asyncio.to_thread(world.publisher.start)
        await world.becomes(lambda _: True)

    async def state(wanted: str, also: Callable[[admin_pb2.FlowStatus], object] = bool) -> admin_pb2.FlowStatus:
        return await world.becomes(lambda flow: flow.state == wanted and also(flow))

    options: SubscriberOptions = {
        "coordinator": str(world.publisher.config),
        "id": "s1",
        "listen": f"127.0.0.1:{world.port}",
    }
    async with serve(app, application="app", **options):
        await puts(b"k1")
        first = await acknowledged(b"k1")
        await puts(b"k2")
        second = await acknowledged(b"k2")

        # Half way through a replay from the first on the publisher is killed: its tasks open the flow again, with the
        # ticket that they have.
        replay = ReplayClient(Asked(world), FLOW)
        await replay.begin(begin=first, until=second)
        opened = await replay.opens()
        assert (marker_from_message(opened.marker), opened.subscriber) == (first, "s1")
        assert await code_of(ReplayClient(Asked(world), FLOW, "r2").begin()) is grpc.StatusCode.FAILED_PRECONDITION
        await puts(b"k3")
        await replay.advances(first)
        await restarts()
        assert await code_of(replay.advances(second)) is grpc.StatusCode.ABORTED
        again = await replay.opens()
        assert again.epoch > opened.epoch
        assert marker_from_message(again.marker) == first
        assert app.keys == [b"k1", b"k2"]
        assert (await replay.finishes(second)).reaches
        third = await acknowledged(b"k3")
        assert app.keys == [b"k1", b"k2", b"k3"]

        # A driver that is silent: the log has everything, so the flow goes on by itself.
        replay = ReplayClient(Asked(world), FLOW, "r3")
        await replay.begin(lease_s=1)
        await replay.opens()
        await puts(b"k4")
        await acknowledged(b"k4")
        assert await code_of(replay.renews()) is grpc.StatusCode.FAILED_PRECONDITION

        # Silent for longer than the log lasts: it needs a replay, also after another kill, and says so until it gets
        # one.
        replay = ReplayClient(Asked(world), FLOW, "r4")
        await replay.begin(begin=third, lease_s=60)
        await replay.opens()
        await asyncio.to_thread(world.writer.many, 0, 3000, 100, 500)
        while (await ReplayClient(Asked(world), FLOW).begin(preview=True)).reaches:  # noqa: ASYNC110 - as an operator asks
            await asyncio.sleep(0.1)
        assert (await replay.cancels()).replay.state == "needs_replay"
        await restarts()
        needs = await state("needs_replay")
        assert "wormholectl replay --resume r4" in needs.cause
        await replay.begin()
        await replay.opens()
        gap = await replay.finishes(third)
        assert not gap.reaches
        assert gap.purged.first_missing
        assert gap.replay.state == "replaying"
        delivered = len(app.keys)
        gap = await replay.finishes(third, accept_gap=True)
        assert not gap.HasField("replay")
        await eventually(lambda: app.losses, "told")
        loss = app.losses[0]
        assert (loss.first_missing, loss.last_missing) == (gap.purged.first_missing, gap.purged.last_missing)
        assert int(loss.first_missing) == int(third.delivered) + 1
        assert len(app.keys) == delivered
        assert (await state("held", lambda flow: flow.loss_pending)).marker == needs.marker
