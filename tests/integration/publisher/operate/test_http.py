"""What a scraper and a load balancer get."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from publisher.flows.marker_writer import MarkerWriter
from publisher.operate import readiness
from publisher.operate.http import serve_http
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually, patience
from wormhole.host.compiled import compiled_modules
from wormhole.host.http_server import url
from wormhole.model.errors import ConfigError, MarkerStoreError
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader
from wormhole.wire.v1 import admin_pb2


async def full(writer: MarkerWriter) -> None:
    raise MarkerStoreError("the disk is full")


async def test_metrics_health_and_readiness_with_its_reasons(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.application()
    await asyncio.to_thread(compiled_modules)  # as a publisher's process does at its start
    async with world.publisher() as publisher:
        server = await serve_http(operated(publisher), "127.0.0.1:0", None, False)
        try:
            async with aiohttp.ClientSession() as session:

                async def ask(path: str) -> tuple[int, str]:
                    async with session.get(url(server.address, None, path)) as answer:
                        return answer.status, await answer.text()

                assert await ask("/healthz") == (200, "ok\n")
                await eventually(publisher.applications.known.is_set, "the configuration is known")
                assert await ask("/readyz") == (200, "ready\n")
                monkeypatch.setattr(MarkerWriter, "flush", full)
                await eventually(lambda: publisher.records.markers.problem, "the next attempt to store datamarkers")
                assert await ask("/readyz") == (
                    503,
                    "datamarkers cannot be stored: the disk is full [marker-store-failed]\n",
                )
                async with session.get(url(server.address, None, "/status")) as answer:
                    told = admin_pb2.PublisherStatus.FromString(await answer.read())
                assert (told.dataset, told.copy, told.log) == ("shop", "main", "log")
                status, text = await ask("/metrics")
                families = {family.name: family for family in text_string_to_metric_families(text)}
                assert status == 200
                (sample,) = families["wormhole_publisher_ready"].samples
                assert sample.value == 0
                assert sample.labels == {"dataset": "shop", "copy": "main", "log": "log"}
                async with session.get(
                    url(server.address, None, "/metrics"), headers={"Host": "rebound.example"}
                ) as answer:
                    assert answer.status == 421
        finally:
            monkeypatch.undo()
            await server.close()


async def test_a_taken_port_names_the_setting(world: World, publisher: Publisher) -> None:
    server = await serve_http(operated(publisher), "127.0.0.1:0", None, False)
    try:
        with pytest.raises(ConfigError, match=r"publisher\.http_listen"):
            await serve_http(operated(publisher), server.address, None, False)
    finally:
        await server.close()


class _Stalling:
    """A reader that hangs in its read while the log goes on, as one on a dead network disk does."""

    def __init__(self, reader: LogReader, stalled: threading.Event) -> None:
        self._reader, self._stalled, self._closed = reader, stalled, threading.Event()

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        while self._stalled.is_set() and not self._closed.wait(0.01):
            pass
        return self._reader.read(max_bytes, wait_s)

    def close(self) -> None:
        self._closed.set()
        self._reader.close()


async def test_a_reader_that_stalls_while_the_log_grows_is_not_ready_until_it_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "STUCK_S", 0.5)
    stalled, opened = threading.Event(), world.source.open
    monkeypatch.setattr(world.source, "open", lambda marker: _Stalling(opened(marker), stalled))
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        server = await serve_http(operated(publisher), "127.0.0.1:0", None, False)
        try:
            async with aiohttp.ClientSession() as session:

                async def answers(status: int, *, writes: bool) -> str:
                    async with patience():
                        while True:
                            if writes:
                                world.commit("a")
                            async with session.get(url(server.address, None, "/readyz")) as answer:
                                if answer.status == status:
                                    return await answer.text()
                            await asyncio.sleep(0.05)

                await answers(200, writes=True)
                stalled.set()
                text = await answers(503, writes=True)
                assert text.startswith("the log shop/main/log grows and nothing of it was read for ")
                async with session.get(url(server.address, None, "/healthz")) as answer:
                    assert answer.status == 200
                stalled.clear()
                await answers(200, writes=False)
        finally:
            stalled.clear()
            await server.close()
