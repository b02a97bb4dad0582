"""What the server refuses and advertises (streams over a real connection: tests/integration/test_sdk_grpc.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server import push_server as module
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.testing import Change, body_of, frames, marker_at, update
from subscriber_sdk.work.shards import Shards
from tests.support.eventually import eventually, patience
from tests.support.flows import Idle
from wormhole.config import TlsFiles
from wormhole.model.errors import ConfigError
from wormhole.wire.v1 import push_pb2


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


class _Publisher:
    """A stream without a network. ``said``: the frames of each message that came back."""

    def __init__(self, options: Options) -> None:
        self.said: list[list[push_pb2.SubscriberFrame]] = []
        self.shards = Shards(Idle(), options)
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._server = PushServer(self.shards, options)
        self._call = asyncio.create_task(self._server._push(self._requests(), self))

    async def _requests(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            yield message

    def peer(self) -> str:
        return "a publisher"

    async def write(self, data: bytes) -> None:
        self.said.append(list(push_pb2.SubscriberMessage.FromString(data).frames))

    def send(self, *given: push_pb2.PublisherFrame) -> None:
        self._messages.put_nowait(push_pb2.PublisherMessage(frames=given).SerializeToString())

    async def hears(self, kind: str) -> list[push_pb2.SubscriberFrame]:
        """The message with a frame of that kind; what came before it is dropped."""

        def found() -> bool:
            return any(frame.WhichOneof("kind") == kind for message in self.said for frame in message)

        await eventually(found, kind)
        while True:
            message = self.said.pop(0)
            if any(frame.WhichOneof("kind") == kind for frame in message):
                return message

    async def close(self) -> None:
        self._messages.put_nowait(None)
        await self._call
        await self.shards.close()


async def _pushed(credit: int) -> tuple[_Publisher, Change]:
    """A flow whose first batch was processed and answered."""
    publisher = _Publisher(Options(application="app", id="one", listen="127.0.0.1:1", credit=credit))
    change = update("t", key=1)
    publisher.send(frames.hello("app", "one"), frames.assign(1, 1, "app", "s", marker_at(0)))
    await publisher.hears("accepted")
    publisher.send(frames.schema(change.schema), frames.batch(1, 1, 1, body_of([change])))
    assert (await publisher.hears("progress"))[-1].progress.number == 1, "after a pause at once"
    return publisher, change


async def test_progress_waits_for_more_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_S", 3600.0)
    publisher, change = await _pushed(credit=1 << 20)
    for number in range(2, 10):
        publisher.send(frames.batch(1, 1, number, body_of([change])))
        [worker] = publisher.shards.workers()
        await eventually(lambda worker=worker, number=number: worker.updates == number, "processed")  # type: ignore[misc]
    assert publisher.said == []
    publisher.send(frames.datamarker(1, 1, marker_at(1)))
    message = await publisher.hears("ack")
    assert [frame.WhichOneof("kind") for frame in message] == ["ack", "progress"]
    assert message[1].progress.number == 9
    await publisher.close()


async def test_progress_that_the_publisher_may_wait_for_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_S", 3600.0)
    publisher, _ = await _pushed(credit=64 << 10)
    large = update("t", key=1, after={"v": bytes(20_000)})
    publisher.send(frames.schema(large.schema), frames.batch(1, 1, 2, body_of([large])))
    assert (await publisher.hears("progress"))[-1].progress.number == 2
    await publisher.close()
