"""What a scraper and a load balancer get."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from publisher.http import serve_http
from tests.support.eventually import eventually
from tests.unit.publisher.conftest import World
from wormhole.errors import ConfigError
from wormhole.http_server import url


async def test_metrics_health_and_readiness_with_its_reasons(world: World) -> None:
    world.application()
    async with world.publisher() as publisher:
        server = await serve_http(publisher, "127.0.0.1:0", None, False)
        try:
            async with aiohttp.ClientSession() as session:

                async def ask(path: str) -> tuple[int, str]:
                    async with session.get(url(server.address, None, path)) as answer:
                        return answer.status, await answer.text()

                assert await ask("/healthz") == (200, "ok\n")
                await eventually(publisher.applications.known.is_set, "the configuration is known")
                assert await ask("/readyz") == (200, "ready\n")
                publisher.markers.problem = "the disk is full"
                assert await ask("/readyz") == (503, "datamarkers cannot be stored: the disk is full\n")
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
            await server.close()


async def test_a_taken_port_names_the_setting(world: World) -> None:
    async with world.publisher() as publisher:
        server = await serve_http(publisher, "127.0.0.1:0", None, False)
        try:
            with pytest.raises(ConfigError, match=r"publisher\.http_listen"):
                await serve_http(publisher, server.address, None, False)
        finally:
            await server.close()
