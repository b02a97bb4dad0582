"""Malicious subscribers that dial: what an attempt costs, and how long a connection lasts that leads to nothing. The
long form beside it (:mod:`tests.hostile.test_malicious_dialler_soak`) measures what other subscribers feel.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from publisher.publisher import Publisher
from publisher.push import attach_service, attached
from tests.hostile.mad_dialler import PREFACE
from tests.hostile.test_malicious_subscriber import counted
from tests.integration.publisher.conftest import World
from tests.integration.publisher.test_attached import Recorder
from tests.integration.publisher.test_attached import attached as served
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually, patience
from wormhole.host import socket_table
from wormhole.push.attaching import METHOD, Attaching
from wormhole.wire.v1 import push_pb2

BESIDE = b"   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 77 1"
HEARTBEATS = push_pb2.SubscriberMessage(
    frames=[push_pb2.SubscriberFrame(heartbeat=push_pb2.Heartbeat())]
).SerializeToString()


@pytest.fixture
async def world() -> World:
    return World(fast_clock(), 120.0 * FAST, attaches=True)


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[tuple[Publisher, Recorder]]:
    """A publisher with a subscriber that is attached and has an update."""
    world.application()
    world.application("mad")
    world.commit("a")
    recorder = Recorder()
    async with world.publisher() as publisher, served(publisher, recorder):
        await eventually(lambda: recorder.acked, "the datamarker")
        yield publisher, recorder


async def serves(world: World, recorder: Recorder, key: str) -> None:
    """The attached subscriber goes on."""
    world.commit(key)
    await eventually(lambda: recorder.keys[-1] == key.encode(), "an update")


async def attempt(address: str, *more: tuple[str, str], frames: Any = None, **who: str) -> grpc.StatusCode:
    """Attach as ``who``, and wait for the end of the call."""
    given: dict[str, Any] = {"application": "mad", "subscriber": "mad-1", "instance": "x", **who}
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: Any = channel.stream_stream(METHOD)(frames, metadata=[*Attaching(**given).to_metadata(), *more])
        async with patience():
            with suppress(grpc.RpcError):
                async for _ in call:
                    pass
            code: grpc.StatusCode = await call.code()
            return code


def test_the_sockets_of_other_ports_cost_nothing() -> None:
    """Each attempt without TLS looks its connection up among all sockets of the host."""
    calls = [0]
    with counted(calls):
        found = list(socket_table.rows_of([BESIDE] * 10_000, 7490))
    assert not found
    assert calls[0] < 100
    assert len(list(socket_table.rows_of([BESIDE], 8080))) == 1


async def test_few_attempts_are_looked_up_at_one_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    most, now, lock = 0, 0, threading.Lock()
    looked_up = attach_service._user_of

    def look_up(peer: str, address: str) -> int | None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        try:
            return looked_up(peer, address)
        finally:
            with lock:
                now -= 1

    async with listening(world) as (publisher, recorder):
        monkeypatch.setattr(attach_service, "_user_of", look_up)
        attempts = [attempt(publisher.listener.address, application=f"guess-{number}") for number in range(40)]
        assert set(await asyncio.gather(*attempts)) == {grpc.StatusCode.PERMISSION_DENIED}
        assert 0 < most <= attach_service._CHECKS
        await serves(world, recorder, "b")


async def test_ids_of_one_application_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id is remembered for as long as a handler of it may run. Other applications are not affected."""
    monkeypatch.setattr(attached, "MOST_SUBSCRIBERS", 3)
    world.settings["heartbeat"] = 0.5 * FAST  # they end after three of them
    async with listening(world) as (publisher, recorder):
        address, refused = publisher.listener.address, publisher.listener.service.refused
        await asyncio.gather(*(attempt(address, subscriber=f"mad-{number}") for number in range(6)))
        assert refused["try-again"] == 3
        assert len(publisher.listener.service.attached._known) == 4
        await serves(world, recorder, "b")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [HEARTBEATS],
        [push_pb2.SubscriberMessage(frames=[push_pb2.SubscriberFrame(ack=push_pb2.Ack(flow=1))]).SerializeToString()],
        [b"\xff" * 1_000_000],
    ],
    ids=["silent", "heartbeats", "early", "no message"],
)
async def test_a_call_without_a_welcome_ends(world: World, frames: list[bytes]) -> None:
    """Within three heartbeats if it is silent, and at once if it breaks the protocol."""
    world.settings["heartbeat"] = 0.5 * FAST
    ended = asyncio.Event()

    async def sent() -> AsyncIterator[bytes]:
        for frame in frames:
            yield frame
        await ended.wait()

    async with listening(world) as (publisher, recorder):
        dialled = asyncio.create_task(attempt(publisher.listener.address, frames=sent()))
        service = publisher.listener.service
        await eventually(lambda: service.attached.unfinished, "it is ended")
        ended.set()
        await dialled
        assert service.attached.connected == 1
        await serves(world, recorder, "b")


async def test_metadata_is_bounded_before_it_is_read(world: World) -> None:
    async with listening(world) as (publisher, recorder):
        large = ("x-large", "y" * 100_000)
        assert await attempt(publisher.listener.address, large) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not publisher.listener.service.refused
        await serves(world, recorder, "b")


@pytest.mark.parametrize("first", [b"", PREFACE], ids=["nothing", "preface"])
async def test_connections_without_a_call_are_bounded_in_number_and_time(
    world: World, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """The same bounds as in use, made small. Once they are gone another subscriber attaches."""
    most = 40
    bounds = {
        "grpc.max_allowed_incoming_connections": most,
        "grpc.server_handshake_timeout_ms": 500,
        "grpc.max_connection_idle_ms": 500,
    }
    assert bounds.keys() <= dict(attach_service._OPTIONS).keys()
    monkeypatch.setattr(attach_service, "_OPTIONS", [*(dict(attach_service._OPTIONS) | bounds).items()])
    async with listening(world) as (publisher, recorder):
        host, _, port = publisher.listener.address.rpartition(":")
        lines = [await asyncio.open_connection(host, int(port)) for _ in range(2 * most)]
        for _, writer in lines:
            writer.write(first)

        async def closed(reader: asyncio.StreamReader) -> None:
            with suppress(ConnectionError):
                while await reader.read(1 << 10):
                    pass

        async with patience():
            await asyncio.gather(*(closed(reader) for reader, _ in lines))
        for _, writer in lines:
            writer.close()
        again = Recorder()
        async with served(publisher, again, id="s2"):
            service = publisher.listener.service
            await eventually(lambda: service.attached.connected == 2, "another one attaches")
        await serves(world, recorder, "b")
