"""What the server refuses and advertises (streams over a real connection: tests/integration/test_sdk_grpc.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import Subscriber, Update
from subscriber_sdk import server as module
from subscriber_sdk.options import Options
from subscriber_sdk.server import PushServer
from subscriber_sdk.shards import Shards
from tests.support.eventually import patience
from wormhole.config import TlsFiles
from wormhole.model.errors import ConfigError


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


def server(**given: Any) -> PushServer:
    options = Options(**{"application": "app", "coordinator": "zk:2181", **given})
    return PushServer(Shards(Idle(), options), options)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"listen": "127.0.0.1:0"}, "127.0.0.1:7000"),
        ({"listen": "[::1]:0"}, "[::1]:7000"),
        ({"listen": "127.0.0.1:0", "advertise": "host"}, "host:7000"),
        ({"listen": "127.0.0.1:0", "advertise": "host:443"}, "host:443"),
        ({"listen": "0.0.0.0:0", "advertise": "host", "insecure": True}, "host:7000"),
    ],
)
def test_the_address_that_publishers_dial(given: dict[str, Any], address: str) -> None:
    built = server(**given)
    built.port = 7000
    assert built.address == address


def test_beyond_loopback_is_refused_without_tls() -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        server(listen="10.0.0.1:7000")


async def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    missing = TlsFiles(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", ca=tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"cert\.pem.*cannot be read"):
        await server(tls=missing, publishers=("db1",)).start()


async def test_stopping_what_never_started_is_fine() -> None:
    await server().stop()
    await server().leave()


class Peer:
    """gRPC's context of a call."""

    def peer(self) -> str:
        return "a publisher"

    async def write(self, data: bytes) -> None:
        pass


async def test_a_publisher_that_goes_while_its_stream_is_ended_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 1000.0)
    open_, ending = asyncio.Event(), asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        open_.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.Event().wait()
        yield b""

    built = server()
    stream = asyncio.create_task(built._push(requests(), Peer()))
    await open_.wait()
    leaving = asyncio.create_task(built.leave())
    await ending.wait()
    stream.cancel()  # what gRPC does then
    async with patience():
        await leaving
    with suppress(asyncio.CancelledError):
        await stream
