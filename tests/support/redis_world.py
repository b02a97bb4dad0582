"""Sinks of Redis on a kit, with a client of their server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.port import Sink
from sinks.redis.kind import KIND
from sinks.redis.settings import RedisSettings
from subscriber_sdk import RetryPolicy
from subscriber_sdk.testing import Kit, KitFlow
from tests.support.redis_server import RedisServer

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["NewWorld", "World", "new_redis_world", "own_redis", "redis_world"]

# The first waits take real time, because a socket is open. While there is none, the kit skips them.
SHORT: Final = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=60.0)


@dataclass
class World:
    """A sink on a kit, and a client of its server. ``settings``: of the sink."""

    kit: Kit
    client: Redis
    settings: dict[str, Any]
    sinks: list[Sink]

    def sink(self) -> Sink:
        """A new process of the sink."""
        sink = KIND.open("cache", RedisSettings.model_validate(self.settings))
        self.sinks.append(sink)
        return sink

    def attach(self, **options: Any) -> KitFlow:
        """A flow to a new process."""
        return self.kit.attach(self.sink().subscriber, retry=SHORT, **options)

    def fill(self, *keys: str) -> None:
        """Cache these keys, as an application does that reads its database."""
        self.client.mset(dict.fromkeys(keys, "cached"))

    @property
    def left(self) -> list[str]:
        """The keys that are not the sink's own."""
        found: Any = self.client.keys()
        return sorted(key.decode() for key in found if not key.startswith(b"wormhole:"))

    @property
    def rows(self) -> dict[str, Any]:
        """The documents of all keys that are not the sink's own."""
        found: Any = {key: self.client.get(key) for key in self.left}
        return {key: json.loads(data) for key, data in found.items()}


NewWorld = Callable[..., World]


@pytest.fixture
def new_redis_world(wormhole_kit: Kit) -> Iterator[NewWorld]:
    """A world with the server at a URL, and settings of the sink."""
    from redis import Redis  # takes half a second, and every run of tests reads this module

    made: list[World] = []

    def new(url: str, **settings: Any) -> World:
        world = World(wormhole_kit, Redis.from_url(url), {"url": url, **settings}, [])
        made.append(world)
        return world

    yield new
    for world in made:
        world.client.close()
        for sink in world.sinks:
            wormhole_kit.run(sink.close())


@pytest.fixture
def redis_world(new_redis_world: NewWorld, redis_url: str) -> World:
    """An empty database of the shared server."""
    return new_redis_world(redis_url)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that a test may kill."""
    with RedisServer() as server:
        yield server
