"""What a publisher reports of its listener for subscribers that dial."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc.aio
import pytest

from publisher.publisher import Publisher
from publisher.wiring import operated
from subscriber_sdk import serve
from tests.integration.publisher.conftest import World
from tests.integration.publisher.test_attached import Recorder, attached
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.host.compiled import compiled_modules
from wormhole.push.attaching import METHOD, Attaching
from wormhole.wire.v1 import admin_pb2


@pytest.fixture
async def world() -> World:
    await asyncio.to_thread(compiled_modules)  # which a publisher reports, and reads once
    return World(fast_clock(), 120.0 * FAST, attaches=True)


def _status(publisher: Publisher) -> admin_pb2.PublisherStatus:
    return operated(publisher).reports.status()


async def _metrics(publisher: Publisher) -> dict[tuple[str, ...], float]:
    """By name and the labels after those of the log."""
    samples = await operated(publisher).metrics.collect()
    return {(one.metric.name, *one.labels[3:]): one.value for one in samples if hasattr(one, "value")}


async def test_attached_refused_and_unfinished(world: World) -> None:
    world.application(allow=("s1", "s3"))
    async with world.publisher() as publisher, attached(publisher, Recorder()):
        await eventually(lambda: _status(publisher).subscribers, "it is attached")
        await eventually(lambda: _status(publisher).subscribers[0].connected_s, "it is welcome")
        (one,) = _status(publisher).subscribers
        assert (one.application, one.subscriber, one.address.partition(":")[0]) == ("app", "s1", "(dials from ipv4")
        async with serve(Recorder(), application="app", dial=[publisher.listener.address], id="s2"):
            await eventually(lambda: _status(publisher).attach.refused, "one is refused")
        async with grpc.aio.insecure_channel(publisher.listener.address) as channel:
            call: Any = channel.stream_stream(METHOD)(metadata=Attaching("app", "s3", "x").to_metadata())
            await call.read()  # its Hello, which it does not answer
        await eventually(lambda: _status(publisher).attach.unfinished, "one sent no welcome")
        status = _status(publisher).attach
        assert (status.address, status.attached) == (publisher.listener.address, 1)
        assert [one.code for one in status.refused] == ["not-permitted"]
        metrics = await _metrics(publisher)
        assert metrics["wormhole_attach_listens",] == metrics["wormhole_attach_connected",] == 1
        assert metrics["wormhole_attach_unfinished_total",] == 1
        assert metrics["wormhole_attach_refused_total", "not-permitted"] >= 1


async def test_a_port_that_is_taken_is_reported_until_it_is_free(world: World) -> None:
    world.application()
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        world.settings["attach_listen"] = f"127.0.0.1:{other.getsockname()[1]}"
        async with world.publisher() as publisher:
            await eventually(lambda: _status(publisher).attach.problem.code == "address-taken", "the problem")
            assert "address-taken" in [one.code for one in _status(publisher).warnings]
            assert (await _metrics(publisher))["wormhole_attach_listens",] == 0
            other.close()
            await eventually(lambda: _status(publisher).attach.address, "it listens")
            assert not _status(publisher).attach.HasField("problem")
            assert not _status(publisher).warnings


async def test_a_publisher_whose_subscribers_listen_reports_nothing_of_it(world: World) -> None:
    world.application(connect="subscriber")
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.applications.config("app"), "the application")
        assert not _status(publisher).HasField("attach")
        assert ("wormhole_attach_listens",) not in await _metrics(publisher)
