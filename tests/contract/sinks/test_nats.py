"""The contract of sinks over NATS JetStream, with streams that allow atomic batches and with streams that do not."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from sinks.nats.kind import KIND
from sinks.port import Sink, SinkKind
from sinks.testing.contract import RecordSinkContract
from sinks.testing.harness import TABLES, RecordHarness
from subscriber_sdk.testing import Kit, kit, update
from tests.support.nats_server import NatsServer, stored

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


@pytest.fixture(scope="module")
def own_server() -> Iterator[NatsServer]:
    """A server that the tests of this module may kill."""
    with NatsServer() as server:
        yield server


class NatsHarness(RecordHarness):
    """A stream."""

    kind: ClassVar[SinkKind[Any]] = KIND
    refused = update(TABLES[0], key=99, after={"text": "x" * 5000})

    def __init__(self, server: NatsServer, *, atomic: bool) -> None:
        self._server = server
        self.opened: list[Sink] = []
        self._stream = f"s{uuid.uuid4().hex[:12]}"
        server.make_stream(name=self._stream, subjects=[f"{self._stream}.>"], allow_atomic=atomic, max_msg_size=4000)

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": self._server.url, "stream": self._stream}

    @contextmanager
    def away(self) -> Iterator[None]:
        self._server.kill()
        try:
            yield
        finally:
            self._server.start()

    def open(self) -> Sink:
        self.opened.append(sink := super().open())
        return sink

    def ids(self) -> Sequence[str]:
        return [json.loads(message.data or b"")["id"] for message in asyncio.run(stored(self._server, self._stream))]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit waits in real time while a connection is open."""
    monkeypatch.setattr(kit, "_LOOK", 0.2)


@pytest.fixture(params=[True, False], ids=["atomic", "one by one"])
def harness(own_server: NatsServer, wormhole_kit: Kit, request: pytest.FixtureRequest) -> Iterator[NatsHarness]:
    found = NatsHarness(own_server, atomic=request.param)
    yield found
    for sink in found.opened:
        wormhole_kit.run(sink.close())


class TestNats(RecordSinkContract):
    pass
