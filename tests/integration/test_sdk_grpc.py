"""A subscriber over real gRPC on loopback: honest publishers, broken ones, silent ones, strangers."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

from subscriber_sdk import (
    Datamarker,
    NoticeKind,
    Running,
    ShardNotice,
    Subscriber,
    SubscriberOptions,
    Update,
    serve,
    transactions,
    updates,
)
from subscriber_sdk.testing import body_of, frames, marker_at, update
from tests.support.certificates import Authority
from tests.support.dialled import dialled
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from wormhole.config import TlsFiles
from wormhole.wire.v1 import push_pb2

ROOT = Path(__file__).parents[2]


class Recorder(Subscriber):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.changed = asyncio.Event()

    def hear(self, what: Any) -> None:
        self.heard.append(what)
        self.changed.set()

    async def on_update(self, update: Update) -> None:
        self.hear(update.key[0])

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
        self.hear(notice.kind)
        return None

    async def until(self, what: Any) -> None:
        async with patience():
            while what not in self.heard:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Recorder, Running]]:
    recorder = Recorder()
    async with serve(recorder, application="app", id="one", listen=f"127.0.0.1:{free_port()}") as running:
        yield recorder, running


async def test_updates_arrive_and_are_acknowledged(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as publisher:
        await publisher.open()
        await publisher.push(1, 1, 2, 3)
        ack = await publisher.next("ack")
        assert ack.ack.marker.delivered == "1"
        assert recorder.heard == [NoticeKind.ASSIGNED, 1, 2, 3]
        assert "flow s epoch 1" in running.flows()[0]


async def test_a_large_update_comes_in_parts(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as publisher:
        await publisher.open()
        change = update("t", key=5, after={"v": Random(1).randbytes(6 << 20)})
        await publisher.send(frames.schema(change.schema))
        for part in frames.parts(1, 1, 1, body_of([change]), 1 << 20):
            await publisher.send(part)
        assert (await publisher.next("progress")).progress.number == 1
        assert 5 in recorder.heard


async def test_a_stopped_stream_is_dialled_again(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as first:
        await first.open()
        await first.push(1, 1)
        await first.next("ack")
    await recorder.until(NoticeKind.REVOKED)
    async with dialled(running.address) as second:
        await second.open(epoch=2)
        await second.push(1, 2, epoch=2)
        await second.next("ack")
    assert recorder.heard[:5] == [NoticeKind.ASSIGNED, 1, NoticeKind.REVOKED, NoticeKind.ASSIGNED, 2]


async def test_a_publisher_that_is_gone_is_missed(
    served: tuple[Recorder, Running], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, running = served
    async with dialled(running.address) as publisher:
        await publisher.open()
        monkeypatch.setattr("subscriber_sdk.server.publishers._PATIENCE_S", 0.0)
    missing = f"no publisher is connected to subscriber app/one at {running.address}"
    await eventually(lambda: missing in caplog.text, "the warning")


async def test_half_closing_ends_the_stream_cleanly(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as publisher:
        await publisher.open()
        await publisher.call.done_writing()
        assert await publisher.end() is grpc.StatusCode.OK
    await recorder.until(NoticeKind.REVOKED)


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff", Random(1).randbytes(300), b"\x0a\x00"], ids=["short", "random", "empty frame"]
)
async def test_garbage_is_answered_and_others_go_on(served: tuple[Recorder, Running], garbage: bytes) -> None:
    _, running = served
    async with dialled(running.address) as honest, dialled(running.address) as broken:
        await honest.open()
        await broken.call.write(garbage)
        goodbye = (await broken.next("goodbye")).goodbye
        assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
        assert goodbye.hint
        assert await broken.end() is grpc.StatusCode.OK
        await honest.push(1, 1)
        await honest.next("ack")


async def test_an_oversized_message_names_the_limit(served: tuple[Recorder, Running]) -> None:
    _, running = served
    async with dialled(running.address) as publisher:
        await publisher.open()
        await publisher.send(frames.batch(1, 1, 1, bytes(5 << 20)))
        assert "max_frame_bytes" in (await publisher.next("goodbye")).goodbye.message


async def test_a_fixed_address_is_for_the_dataset_of_its_file_only(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "shop.toml"
    file.write_text(
        'version = 1\n[publisher]\nstate_dir = "state"\n[datasets.shop.copies.main.logs.db1]\nsource = '
        '"rocksdb:///nowhere"\n'
        '[applications.app]\ndataset = "shop"\nstart = "latest"\n'
        f'subscribers = {{ one = "127.0.0.1:{port}" }}\n'
    )
    async with serve(Recorder(), application="app", coordinator=str(file)) as running:
        async with dialled(running.address) as publisher:
            await publisher.send(frames.hello("app", "one", dataset="other"))
            goodbye = (await publisher.next("goodbye")).goodbye
            assert goodbye.reason == push_pb2.Goodbye.WRONG_ADDRESS
            assert "dataset other" in goodbye.message
        async with dialled(running.address) as publisher:
            await publisher.send(frames.hello("app", "one", dataset="shop"))
            await publisher.next("welcome")


async def test_a_silent_publisher_loses_its_stream(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as publisher:
        await publisher.open(heartbeat_ms=500)
        assert (await publisher.next("heartbeat")).heartbeat.number == 1
        assert await publisher.end() is grpc.StatusCode.OK
    await recorder.until(NoticeKind.REVOKED)


async def test_heartbeats_keep_an_idle_stream(served: tuple[Recorder, Running]) -> None:
    recorder, running = served
    async with dialled(running.address) as publisher:
        await publisher.open(heartbeat_ms=500)
        for number in range(5):  # it would be silent for too long after three
            await publisher.send(push_pb2.PublisherFrame(heartbeat=push_pb2.Heartbeat(number=number)))
            await publisher.next("heartbeat")
        assert NoticeKind.REVOKED not in recorder.heard


async def test_a_publisher_that_stops_reading_does_not_hold_up_another(served: tuple[Recorder, Running]) -> None:
    _, running = served
    async with dialled(running.address) as stalled, dialled(running.address) as honest:
        await stalled.open(shard="stalled")
        for number in range(1, 50):
            await stalled.push(number, number)  # never reads its answers
        await honest.open()
        await honest.push(1, 1)
        await honest.next("ack")


async def test_leaving_releases_and_says_goodbye() -> None:
    recorder = Recorder()
    leave, ready = asyncio.Event(), asyncio.Event()
    address = f"127.0.0.1:{free_port()}"

    async def application() -> None:
        async with serve(recorder, application="app", id="one", listen=address):
            ready.set()
            await leave.wait()

    running = asyncio.create_task(application())
    await ready.wait()
    async with dialled(address) as publisher:
        await publisher.open()
        await publisher.push(1, 1)
        await publisher.next("ack")
        leave.set()
        assert (await publisher.next("released")).released.marker.delivered == "1"
        assert (await publisher.next("goodbye")).goodbye.reason == push_pb2.Goodbye.LEAVING
        assert await publisher.end() is grpc.StatusCode.OK
    await running
    assert recorder.heard[-1] is NoticeKind.REVOKED


# --- the other two ways in ---


def assert_left_quietly(caplog: pytest.LogCaptureFixture) -> None:
    assert [one.message for one in caplog.records if one.levelno > logging.INFO or one.exc_info] == []
    assert [one.message for one in caplog.records if "loop" in one.message] == [
        "the loop was left: its last item is not acknowledged and will be delivered again"
    ]


@pytest.mark.parametrize("attempts", [1, 8])
async def test_asking_for_the_next_update_acknowledges_the_last(
    caplog: pytest.LogCaptureFixture, attempts: int
) -> None:
    caplog.set_level(logging.INFO, "subscriber_sdk")
    port = free_port()
    stream = updates(application="app", id="one", listen=f"127.0.0.1:{port}", stop_timeout=5, retry=attempts)
    first = asyncio.ensure_future(anext(stream))
    async with dialled(f"127.0.0.1:{port}", wait=True) as publisher:
        await publisher.open()
        await publisher.push(1, 1)
        await publisher.push(2, 2)
        assert (await first).key == (1,)
        assert (await anext(stream)).key == (2,)
        assert (await publisher.next("ack")).ack.marker.delivered == "1"
        await stream.aclose()
        released = (await publisher.next("released")).released
        assert released.marker.delivered == "1"
        assert (await publisher.next("goodbye")).goodbye.reason == push_pb2.Goodbye.LEAVING
    assert_left_quietly(caplog)


async def test_a_transaction_comes_as_one_list(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "subscriber_sdk")
    port = free_port()
    stream = transactions(application="app", id="one", listen=f"127.0.0.1:{port}", stop_timeout=5)
    first = asyncio.ensure_future(anext(stream))
    async with dialled(f"127.0.0.1:{port}", wait=True) as publisher:
        await publisher.open()
        await publisher.push(1, 1, 2)
        await publisher.push(2, 3)
        assert [one.key for one in await first] == [(1,), (2,)]
        assert [one.key for one in await anext(stream)] == [(3,)]
        assert (await publisher.next("ack")).ack.marker.delivered == "1"
        await stream.aclose()
        assert (await publisher.next("released")).released.marker.delivered == "1"
    assert_left_quietly(caplog)


PROGRAM = """
import subscriber_sdk, sys

class Printer(subscriber_sdk.Subscriber):
    def on_update(self, update):
        print(update.key[0], flush=True)

subscriber_sdk.run(Printer(), application="app", id="one", listen=sys.argv[1])
print("left", flush=True)
"""


async def test_sigterm_finishes_acknowledges_and_leaves() -> None:
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        address,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with dialled(address, wait=True) as publisher:
            await publisher.open()
            await publisher.push(1, 7)
            await publisher.next("ack")
            process.send_signal(signal.SIGTERM)
            assert (await publisher.next("released")).released.marker.delivered == "1"
            assert (await publisher.next("goodbye")).goodbye.reason == push_pb2.Goodbye.LEAVING
        async with patience():
            assert await process.stdout.read() == b"7\nleft\n"
            log = (await process.stderr.read()).decode()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # Logging was set up by `run`: one line for people each.
    form = re.compile(r"[-\d]{10} [:\d]{8} \[info     \] (.*) \[subscriber_sdk\]")
    lines = [form.fullmatch(line) for line in log.splitlines()]
    assert [line and line[1] for line in lines] == [
        f"subscriber app/one listens at {address}, without a coordinator",
        "publisher test/test/log@localhost:1 connected",
        f"publisher test/test/log@localhost:1 serves shards: s from {marker_at(0)} in epoch 1",
        f"shards are no longer served: s acknowledged to {marker_at(1)}: this subscriber leaves",
    ]


# --- TLS ---


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_mutual_tls_carries_updates(authority: Authority) -> None:
    recorder = Recorder()
    options: SubscriberOptions = {
        "id": "one",
        "tls": authority.issue("one"),
        "publishers": ["db1"],
        "listen": f"127.0.0.1:{free_port()}",
    }
    db1, db2 = authority.issue("db1"), authority.issue("db2")
    async with serve(recorder, application="app", **options) as running:
        async with dialled(running.address, db1) as publisher:
            await publisher.open()
            await publisher.push(1, 1)
            await publisher.next("ack")
        async with dialled(running.address, db2) as stranger:
            goodbye = (await stranger.next("goodbye")).goodbye
            assert goodbye.reason == push_pb2.Goodbye.NOT_ALLOWED
            assert "db2" in goodbye.message
        async with dialled(running.address) as plain:
            with pytest.raises((grpc.aio.AioRpcError, AssertionError, asyncio.InvalidStateError)):
                await plain.open()


async def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    stranger = other.issue("db1")
    mixed = TlsFiles(cert=stranger.cert, key=stranger.key, ca=authority.ca)
    options: SubscriberOptions = {
        "id": "one",
        "tls": authority.issue("one"),
        "publishers": ["db1"],
        "listen": f"127.0.0.1:{free_port()}",
    }
    async with serve(Recorder(), application="app", **options) as running:
        async with dialled(running.address, mixed) as publisher:
            with pytest.raises((grpc.aio.AioRpcError, AssertionError, asyncio.InvalidStateError)):
                await publisher.open()
