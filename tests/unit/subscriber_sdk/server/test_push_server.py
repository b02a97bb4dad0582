"""What the server refuses and advertises, and who serves a subscriber."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk.options.subscriber_options import SHARED, Options
from subscriber_sdk.server import stream as module
from subscriber_sdk.server.publishers import Publishers
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.server.stream import Streams
from subscriber_sdk.stream.flow_port import PushingPeer
from subscriber_sdk.testing import Change, body_of, frames, marker_at, update
from subscriber_sdk.testing.clock import FakeTimeLoop
from subscriber_sdk.work.shards import Shards
from tests.support.eventually import eventually, patience
from tests.support.flows import Idle
from wormhole.config import TlsFiles
from wormhole.model.errors import ConfigError
from wormhole.model.problem import Problem
from wormhole.wire.v1 import push_pb2

# --- push server ---


def server(**given: Any) -> PushServer:
    options = Options(**{"application": "app", "coordinator": "zk:2181", **given})
    return PushServer(Streams(Shards(Idle(), options), options), options)


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

    options = Options("app", coordinator="zk:2181")
    streams = Streams(Shards(Idle(), options), options)
    stream = asyncio.create_task(PushServer(streams, options)._push(requests(), Peer()))
    await open_.wait()
    leaving = asyncio.create_task(streams.leave())
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
        self._server = PushServer(Streams(self.shards, options), options)
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


# --- publishers: who serves a subscriber, and what to look at while nobody does ---


ADDRESS = "10.0.0.7:4711"


class Scene:
    """A subscriber that listens, by a clock of its own."""

    def __init__(self, loop: FakeTimeLoop, caplog: pytest.LogCaptureFixture) -> None:
        self.loop = loop
        self.caplog = caplog
        self.serves = False

    def listens(self, coordinator: str = "zk1:2181/wormhole") -> Publishers:
        options = Options("cache", coordinator=coordinator, id="web-1", listen="127.0.0.1:4711")
        publishers = Publishers(options, lambda: self.serves)
        self.loop.call_soon(publishers.expected, ADDRESS)
        return publishers

    def after(self, seconds: float) -> list[tuple[int, str]]:
        """Level and text of what is logged meanwhile."""
        self.caplog.clear()
        self.loop.run_until_complete(asyncio.sleep(seconds))
        return [(record.levelno, record.getMessage()) for record in self.caplog.records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    caplog.set_level(logging.INFO)
    loop = FakeTimeLoop()
    yield Scene(loop, caplog)
    loop.close()


def test_without_a_publisher_it_names_what_to_look_at_and_repeats_it_rarely(scene: Scene) -> None:
    scene.listens()
    line = f"subscriber cache/web-1 listens at {ADDRESS}, coordinator zk1:2181/wormhole"
    assert scene.after(9.9) == [(logging.INFO, line)]
    ((level, text),) = scene.after(0.2)
    assert level == logging.WARNING
    assert text.startswith(f"no publisher is connected to subscriber cache/web-1 at {ADDRESS} for 10 s. Next: ")
    for command in ("publishers", "subscribers", "why-lag cache/SHARD"):
        assert f"`wormholectl {command} -c zk1:2181/wormhole`" in text
    assert scene.after(299) == []
    ((_, text),) = scene.after(2)
    assert "for 310 s" in text


@pytest.mark.parametrize(
    ("coordinator", "shown"),
    [
        ("", f"the publisher's configuration has to list {ADDRESS} in [applications.cache.subscribers]"),
        ("shop.toml", "`wormholectl publishers -c shop.toml`"),
        (SHARED, "`wormholectl publishers`"),
    ],
)
def test_the_next_step_fits_the_coordinator(scene: Scene, coordinator: str, shown: str) -> None:
    scene.listens(coordinator)
    assert shown in scene.after(11)[-1][1]


def test_a_publisher_that_connects_is_named_and_ends_the_wait(scene: Scene) -> None:
    publishers, peer = scene.listens(), PushingPeer("shop/main/db1@h:1")
    scene.serves = True
    scene.after(5)
    scene.loop.call_soon(publishers.connected, peer)
    assert scene.after(1000) == [(logging.INFO, "publisher shop/main/db1@h:1 connected")]


def test_after_the_last_publisher_has_gone_the_wait_begins_anew(scene: Scene) -> None:
    publishers, first, second = scene.listens(), PushingPeer("one"), PushingPeer("two")
    scene.serves = True
    for peer in (first, second):
        scene.loop.call_soon(publishers.connected, peer)
    scene.after(100)
    scene.loop.call_soon(publishers.disconnected, first)
    assert scene.after(100) == []
    scene.loop.call_soon(publishers.disconnected, second)
    assert scene.after(9) == []
    assert [level for level, _ in scene.after(2)] == [logging.WARNING]


def test_a_stream_that_was_refused_changes_nothing(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(100)
    scene.loop.call_soon(publishers.disconnected, PushingPeer("a stranger"))
    assert scene.after(200) == []


def test_a_publisher_that_gives_no_shard_is_named_once(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(1)
    scene.loop.call_soon(publishers.connected, PushingPeer("one"))
    _, (level, text) = scene.after(1000)
    assert (level, text.partition(":")[0]) == (
        logging.INFO,
        "publisher one has given this subscriber no shard within 10 s",
    )
    assert "`wormholectl flows -c zk1:2181/wormhole`" in text


def test_nothing_is_logged_after_the_end(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(1)
    publishers.close()
    publishers.disconnected(PushingPeer("one"))
    assert scene.after(1000) == []


def test_a_refusal_is_logged_once_however_often_the_publisher_dials(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    publishers = scene.listens()
    for number in (1, 2, 1, 2):
        publishers.refused("db1@h:1", Problem(f"reason {number}", "do this"))
    assert [record.getMessage() for record in caplog.records] == [
        "refused db1@h:1: reason 1. Next: do this",
        "refused db1@h:1: reason 2. Next: do this",
    ]
    for number in range(1000):
        publishers.refused("db1@h:1", Problem(f"reason {number}"))
    assert len(publishers._refused) <= 64
