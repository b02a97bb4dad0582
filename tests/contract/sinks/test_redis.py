"""The contract of sinks over Redis with whole rows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
from redis import Redis

from sinks.port import Sink, SinkKind
from sinks.redis.kind import KIND
from sinks.testing.contract import RowSinkContract
from sinks.testing.harness import Row, RowHarness
from subscriber_sdk import Op
from subscriber_sdk.testing import Change, Kit, update
from tests.support.redis_server import RedisServer

# The client looks up addresses, which the kit's loop does in place.
pytestmark = pytest.mark.allow_blocking


class RedisHarness(RowHarness):
    """A server of its own."""

    kind: ClassVar[SinkKind[Any]] = KIND
    refused: Change | None = update("shop.orders", key=9, after={"text": "a"}, op=Op.MERGE)

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.opened: list[Sink] = []

    def open(self) -> Sink:
        self.opened.append(sink := super().open())
        return sink

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": self._server.url(), "mode": "set"}

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self._server.kill()
        try:
            yield
        finally:
            self._server.start()

    def rows(self, table: str) -> Mapping[int, Row]:
        with self._client() as client:
            found: Any = client.keys(f"{table}:*")
            return {json.loads(data).pop("id"): _row(data) for data in client.mget(found) if data} if found else {}

    def remove(self, table: str, key: int) -> None:
        with self._client() as client:
            client.delete(f"{table}:{key}")

    def empty(self) -> None:
        """Begin anew."""
        with self._client() as client:
            client.flushall()

    def _client(self) -> contextlib.closing[Redis]:
        return contextlib.closing(self._server.client())


def _row(data: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(data)
    del row["id"]
    return row


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def harness(server: RedisServer, wormhole_kit: Kit) -> Iterator[RedisHarness]:
    harness = RedisHarness(server)
    harness.empty()
    yield harness
    for sink in harness.opened:
        wormhole_kit.run(sink.close())


class TestRedis(RowSinkContract):
    pass
