"""Subscribers that dial through a TCP balancer: what it cuts, and what it stops to forward."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from publisher.publisher import Publisher
from subscriber_sdk import Datamarker, NoticeKind, Running, ShardNotice, Update
from tests.integration.publisher.conftest import World
from tests.integration.publisher.test_attached import KEY, Recorder, attached
from tests.support.eventually import eventually, patience
from tests.support.fault_proxy import FaultProxy
from wormhole.model.position import LogPosition
from wormhole.push.attaching import METHOD, Attaching

HEARTBEAT_S = 0.25
CUTS_AFTER = 20  # heartbeats: a balancer that cuts after 60 s, and a heartbeat of 3 s


class Assigned(Recorder):
    """Remembers where each assignment begins, and what it delivers."""

    def __init__(self) -> None:
        super().__init__()
        self.assigned: list[tuple[LogPosition, list[object]]] = []

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.ASSIGNED:
            assert notice.marker is not None
            self.assigned.append((notice.marker.order, []))

    async def on_update(self, update: Update) -> None:
        self.assigned[-1][1].append(update.key[0])
        await super().on_update(update)


@pytest.fixture
async def world() -> World:
    world = World(attaches=True)
    world.settings["heartbeat"] = HEARTBEAT_S
    world.application()
    return world


@asynccontextmanager
async def behind_a_balancer(
    world: World, recorder: Recorder
) -> AsyncIterator[tuple[Publisher, FaultProxy, Running, Datamarker]]:
    """A publisher, and a subscriber that dials it through the balancer and has one update."""
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        host, _, port = publisher.listener.address.rpartition(":")
        with FaultProxy(host, int(port)) as proxy:
            async with attached(f"{proxy.host}:{proxy.port}", recorder) as running:
                first = world.commit("a")
                await eventually(lambda: recorder.acked, "the datamarker")
                yield publisher, proxy, running, first


async def test_a_balancer_that_cuts_idle_connections_does_not_cut_these(world: World) -> None:
    """Nothing is written for longer than it waits. The same balancer with less patience cuts."""
    recorder = Recorder()
    async with behind_a_balancer(world, recorder) as (publisher, proxy, _, _):
        await asyncio.to_thread(proxy.cut_idle, CUTS_AFTER * HEARTBEAT_S)
        await asyncio.sleep(1.2 * CUTS_AFTER * HEARTBEAT_S)  # what it would take to cut
        assert (proxy.idle_cuts, proxy.accepted) == (0, 1)
        await asyncio.to_thread(proxy.cut_idle, HEARTBEAT_S / 5)
        await eventually(lambda: proxy.idle_cuts, "it cuts")
        await asyncio.to_thread(proxy.cut_idle, math.inf)  # a busy machine needs longer to dial than it waited
        (stream,) = publisher.assigner.streams()
        await eventually(lambda: stream.traffic.connections > 1, "it dials again")


async def test_a_cut_repeats_what_was_not_acknowledged_and_nothing_else(world: World) -> None:
    """At random bytes. Each assignment begins where the stored datamarker was or later, and continues from there."""
    recorder, chance = Assigned(), random.Random(35)
    keys, places = ["a"], [LogPosition(0, 0, 0)]
    async with behind_a_balancer(world, recorder) as (_, proxy, _, first):
        places.append(first.order)
        for number in range(8):
            cuts = len(recorder.assigned)
            await asyncio.to_thread(proxy.after, chance.randrange(1, 4000), proxy.cut)
            stored = world.markers.records[KEY].marker.order
            while len(recorder.assigned) == cuts:
                keys.append(f"k{number}-{len(keys)}")
                places.append(world.commit(keys[-1]).order)
                if len(keys) % 500 == 0:  # the cut met no connection
                    await asyncio.to_thread(proxy.cut)
                await asyncio.sleep(0.01)
            assert recorder.assigned[-1][0] >= stored
        await eventually(lambda: recorder.keys[-1] == keys[-1].encode(), "all of it")
    assert len(recorder.assigned) > 8
    for begin, delivered in recorder.assigned:
        expected = [key.encode() for key, place in zip(keys, places[1:], strict=True) if place > begin]
        assert delivered == expected[: len(delivered)]
    assert list(dict.fromkeys(recorder.keys)) == [key.encode() for key in keys]


async def half_open(world: World) -> tuple[float, float]:
    """A connection on which nothing is forwarded any more is made anew. Returns the heartbeats after which the
    publisher and the subscriber noticed it.
    """
    recorder = Recorder()
    async with behind_a_balancer(world, recorder) as (publisher, proxy, running, _):
        (stream,) = publisher.assigner.streams()
        await asyncio.to_thread(proxy.stall)
        began = time.monotonic()

        async def noticed(lost: Callable[[], object]) -> float:
            await eventually(lost, "it is noticed")
            return (time.monotonic() - began) / HEARTBEAT_S

        found = await asyncio.gather(noticed(lambda: not stream.connected), noticed(lambda: not running.flows()))
        await asyncio.to_thread(proxy.pass_through)
        world.commit("b")
        await eventually(lambda: recorder.keys[-1] == b"b", "it goes on")
    assert recorder.keys == [b"a", b"b"]
    return found


async def test_a_half_open_connection_is_made_anew(world: World) -> None:
    await half_open(world)


async def test_both_sides_notice_within_three_heartbeats(world: World) -> None:
    publisher, subscriber = await half_open(world)
    print(f"noticed after {publisher:.1f} and {subscriber:.1f} heartbeats")
    assert max(publisher, subscriber) <= 4  # a busy machine is late by one


async def test_a_subscriber_may_ping(world: World) -> None:
    """gRPC ends a connection with more than two pings that it does not permit."""
    world.settings["heartbeat"] = 60.0  # so that no message in between counts
    options = [
        ("grpc.keepalive_time_ms", 1100),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        async with grpc.aio.insecure_channel(publisher.listener.address, options) as channel:
            call: Any = channel.stream_stream(METHOD)(metadata=Attaching("app", "s1", "x").to_metadata())
            async with patience():
                await call.read()  # its Hello
            ended = asyncio.create_task(call.code())
            done, _ = await asyncio.wait([ended], timeout=6.0)
            assert not done
            call.cancel()
            await ended
