"""What tests rely on of the private servers of sinks; what all kinds have is in
`tests/contract/test_private_server.py`."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess

import redis.asyncio

from tests.support.nats_server import NatsServer
from tests.support.redis_server import RedisServer


async def test_a_database_of_redis_is_empty_and_its_own(redis_url: str, redis_server: RedisServer) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.keys() == []
        await client.set("a", b"\xff")
        assert await client.get("a") == b"\xff"
    with contextlib.closing(redis_server.client(int(redis_url.rpartition("/")[2]) + 1)) as other:
        assert other.get("a") is None


def test_redis_has_settings_a_password_and_programs() -> None:
    with RedisServer(options={"requirepass": "open", "maxmemory-policy": "allkeys-lru"}) as server:
        ask = [*server.program("redis-cli"), "-u", server.url(), "--no-auth-warning"]
        words = [*ask, "CONFIG", "GET", "maxmemory-policy"]
        answer = subprocess.run(words, env=server.environment(), check=True, capture_output=True, text=True)
        assert answer.stdout.split() == ["maxmemory-policy", "allkeys-lru"]


async def test_a_stream_of_nats_drops_a_duplicate_and_survives_a_kill() -> None:
    server = await asyncio.to_thread(NatsServer().__enter__)
    try:
        client = await server.connect()
        stream = client.jetstream()
        await stream.add_stream(name="changes", subjects=["changes.>"])
        for _ in range(2):
            await stream.publish("changes.a", b"one", headers={"Nats-Msg-Id": "1"})
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        assert (await stream.stream_info("changes")).state.messages == 1
        await client.close()
    finally:
        await asyncio.to_thread(server.close)


async def test_the_shared_nats_has_a_limit_of_a_message(nats_server: NatsServer) -> None:
    client = await nats_server.connect()
    assert client.max_payload == 1 << 20
    await client.close()
