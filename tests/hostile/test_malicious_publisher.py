"""A malicious publisher, with a certificate or on loopback: what it can do to a subscriber (docs/security.md,
docs/subscriber.md).

Each attack is done over real gRPC, with real certificates where it takes one. The bounds count what is held, never the
time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from subscriber_sdk import Subscriber, Update, serve
from subscriber_sdk.runner import Running
from subscriber_sdk.server import epoch_records
from subscriber_sdk.stream.budget import FLOW_BYTES, STREAM_BYTES
from subscriber_sdk.testing import frames, marker_at
from tests.support.certificates import Authority
from tests.support.dialled import Dialler, dialled
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.config import TlsFiles, parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import FlowRecord
from wormhole.model.errors import ConfigError
from wormhole.model.schema import Column, Schema
from wormhole.wire.v1 import push_pb2

CONFIG = """
version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///tmp/none"
host = "h"
[datasets.users.copies.main.logs.db2]
source = "rocksdb:///tmp/none"
host = "h"
[applications.app]
dataset = "shop"
start = "latest"
"""


class Recorder(Subscriber):
    """``keys``: of the updates of the honest publisher's shard."""

    def __init__(self) -> None:
        self.keys: list[Any] = []

    async def on_update(self, update: Update) -> None:
        if update.shard == "s":
            self.keys.append(update.key[0])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(recorder: Recorder, **options: Any) -> AsyncIterator[Running]:
    given = {"application": "app", "id": "one", "listen": f"127.0.0.1:{free_port()}", **options}
    async with serve(recorder, **given) as running:
        yield running


@asynccontextmanager
async def coordinated(recorder: Recorder, tls: TlsFiles, publishers: Any) -> AsyncIterator[tuple[Running, Any]]:
    """A subscriber whose dataset the coordinator knows."""
    coordinator = MemoryCoordinator(MemoryWorld(parse(CONFIG, "test.toml")))
    await coordinator.start()
    try:
        async with serving(recorder, tls=tls, publishers=publishers, coordinator=coordinator) as running:
            yield running, coordinator
    finally:
        await coordinator.stop()


async def parting(publisher: Dialler) -> push_pb2.Goodbye:
    return (await publisher.next("goodbye")).goodbye


# --- who may push --------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_subscriber_with_tls_does_not_start_before_it_names_its_publishers(authority: Authority) -> None:
    """It would take updates from every holder of a certificate: from another subscriber's host too."""
    with pytest.raises(ConfigError) as caught:
        async with serving(Recorder(), tls=await asyncio.to_thread(authority.issue, "one")):
            pass
    assert 'add publishers=["NAME"] (WORMHOLE_PUBLISHERS=NAME)' in str(caught.value)
    assert "wormholectl doctor" in str(caught.value)


async def test_a_subscribers_certificate_cannot_push(authority: Authority) -> None:
    one, other, db1 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "cache-2", "db1")]
    recorder = Recorder()
    async with serving(recorder, tls=one, publishers=["db1"]) as running:
        async with dialled(running.address, other) as thief:
            await thief.send(frames.hello("app", "one"), frames.assign(1, 1, "app", "s", marker_at(0)))
            goodbye = await parting(thief)
        assert goodbye.reason == push_pb2.Goodbye.NOT_ALLOWED
        assert "cache-2" in goodbye.message
        assert "app/one takes it from db1" in goodbye.message
        async with dialled(running.address, db1) as publisher:
            await publisher.open()
            await publisher.push(1, 7)
            await publisher.next("ack")
    assert recorder.keys == [7]


@pytest.mark.parametrize(
    ("publishers", "claimed", "reason"),
    [
        (["db1", "db2"], "users", push_pb2.Goodbye.WRONG_ADDRESS),
        (["db1", "db2"], "", push_pb2.Goodbye.WRONG_ADDRESS),
        ({"shop": ["db1"], "users": ["db2"]}, "shop", push_pb2.Goodbye.NOT_ALLOWED),
    ],
)
async def test_a_publisher_of_another_dataset_takes_no_flow_over(
    authority: Authority, publishers: Any, claimed: str, reason: push_pb2.Goodbye.Reason
) -> None:
    one, db1, db2 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "db1", "db2")]
    recorder = Recorder()
    async with (
        coordinated(recorder, one, publishers) as (running, coordinator),
        dialled(running.address, db1) as publisher,
    ):
        await coordinator.write_flows({("app", "s"): FlowRecord("db1", "one", 1, "opening")})
        await publisher.open(dataset="shop")
        await publisher.push(1, 1)
        await publisher.next("ack")
        await coordinator.write_flows({("app", "s"): FlowRecord("db2", "one", 9, "opening")})
        async with dialled(running.address, db2) as thief:
            hello = frames.hello("app", "one", dataset=claimed, owner="thief")
            await thief.send(hello, frames.assign(1, 9, "app", "s", marker_at(0)))
            assert (await parting(thief)).reason == reason
        await publisher.push(2, 2)  # its flow was not cut off
        await publisher.next("ack")
    assert recorder.keys == [1, 2]


# --- epochs --------------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_an_epoch_that_is_not_recorded_takes_no_flow_over(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be refused for good: what its publisher assigns next is below it."""
    monkeypatch.setattr(epoch_records, "_PATIENCE_S", 0.0)
    one, db1, db2 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "db1", "db2")]
    recorder = Recorder()
    async with coordinated(recorder, one, ["db1", "db2"]) as (running, coordinator):
        async with dialled(running.address, db1) as publisher, dialled(running.address, db2) as thief:
            await coordinator.write_flows({("app", "s"): FlowRecord("db1", "one", 3, "opening")})
            await publisher.open(dataset="shop", epoch=3)
            await publisher.push(1, 1, epoch=3)
            await publisher.next("ack")
            hello = frames.hello("app", "one", dataset="shop", owner="thief", heartbeat_ms=60_000)
            await thief.send(hello, frames.assign(1, 4, "app", "s", marker_at(0)))
            await thief.send(frames.assign(2, (1 << 63) - 2, "app", "s", marker_at(0)))
            for flow in (1, 2):
                failed = (await thief.next("failed")).failed
                assert (failed.flow, failed.reason) == (flow, push_pb2.Failed.RESEND)
                assert "of shard s is refused: the coordinator records epoch 3 for it" in failed.message
            await publisher.push(2, 2, epoch=3)
            await publisher.next("ack")
            await coordinator.write_flows({("app", "s"): FlowRecord("db1", "one", 4, "opening")})
            await publisher.send(frames.assign(2, 4, "app", "s", marker_at(2)))
            await publisher.next("accepted")
    assert recorder.keys == [1, 2]


@pytest.mark.parametrize("epoch", [1 << 63, (1 << 64) - 1])
async def test_an_epoch_that_nothing_exceeds_keeps_no_publisher_away(epoch: int) -> None:
    recorder = Recorder()
    async with serving(recorder) as running:
        async with dialled(running.address) as thief:
            await thief.send(frames.hello("app", "one"), frames.assign(1, epoch, "app", "s", marker_at(0)))
            goodbye = await parting(thief)
            assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
            assert f"assign.epoch: {epoch}; epochs are below 2^63" in goodbye.message
        async with dialled(running.address) as publisher:
            await publisher.open(epoch=2)
            await publisher.push(1, 7, epoch=2)
            await publisher.next("ack")
    assert recorder.keys == [7]


# --- what a publisher can make a subscriber hold ------------------------------------------------------------------------  # noqa: E501

MIB = 1 << 20


async def flood(publisher: Dialler, given: Iterable[push_pb2.PublisherFrame], at_once: int = 200) -> str:
    """Send frames until the subscriber ends the stream: why it did, as its goodbye says.

    It has to be a breach of the protocol."""
    frames_ = iter(given)
    reading = asyncio.create_task(parting(publisher))
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while not reading.done() and (some := list(islice(frames_, at_once))):
            await publisher.send(*some)
            await asyncio.sleep(0)
    goodbye = await reading
    assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
    return goodbye.message


def _held(running: Running) -> int:
    return running._shards.state.used


class Beside:
    """An honest publisher with a flow at the subscriber that is attacked, and the most that the subscriber held
    meanwhile."""

    def __init__(self, publisher: Dialler, recorder: Recorder) -> None:
        self._publisher = publisher
        self._recorder = recorder
        self._number = 0

    async def goes_on(self) -> None:
        """Its next update is delivered in the epoch that the flow had: nothing cut it off."""
        self._number += 1
        await self._publisher.push(self._number, self._number)
        await self._publisher.next("ack")
        assert self._recorder.keys == list(range(1, self._number + 1))


@asynccontextmanager
async def attacked(recorder: Recorder | None = None, **options: Any) -> AsyncIterator[tuple[Running, Dialler, Beside]]:
    """A subscriber with 4 MiB for what publishers make it keep; a stranger that said hello; and an honest publisher
    beside it."""
    recorder = recorder or Recorder()
    async with serving(recorder, **{"max_state": 4 * MIB, **options}) as running:
        async with dialled(running.address) as publisher, dialled(running.address) as thief:
            await publisher.open(heartbeat_ms=60_000)
            beside = Beside(publisher, recorder)
            await beside.goes_on()
            await thief.send(frames.hello("app", "one", publisher="thief", heartbeat_ms=60_000))
            await thief.next("welcome")
            yield running, thief, beside


async def others_are_not_affected(running: Running, beside: Beside) -> None:
    """The room is free again, and the honest publisher goes on."""
    assert _held(running) < MIB
    await beside.goes_on()


async def opened(thief: Dialler) -> None:
    await thief.send(frames.assign(1, 1, "app", "theirs", marker_at(0)))
    await thief.next("accepted")


def assigned(**fields: Any) -> Iterable[push_pb2.PublisherFrame]:
    return [frames.assign(1, 1, "app", fields.pop("shard", "t"), marker_at(0), **fields)]


WIDE = Schema("t", tuple(Column("c", "int") for _ in range(50_000)), ())
LOSS = push_pb2.DataLoss(flow=1, epoch=1, kind=push_pb2.DataLoss.PURGED, message="x" * 1000)
EMPTY_UPDATES = b"\x0a\x00" * (4 * MIB)
"""A body of 8 MiB: 64 MiB when it is parsed, 500 MiB as updates."""
# What is sent, how many frames at once, whether a flow is open before, and why the stream ends.
FLOODS: dict[str, tuple[Callable[[], Iterable[push_pb2.PublisherFrame]], int, bool, str]] = {
    "invented shards": (
        lambda: (frames.assign(i, 1, "app", f"invented-{i}", marker_at(0)) for i in range(1, 20_001)),
        200, False, "does not fit: this publisher makes the subscriber keep",
    ),
    # Each epoch waits until the one before has ended; flow numbers of a stream are not reused.
    "one shard assigned again and again": (
        lambda: (frames.assign(i, i, "app", "again", marker_at(0)) for i in range(1, 20_001)),
        200, False, "does not fit",
    ),
    "many columns of few bytes": (lambda: [frames.schema(WIDE)], 1, False, "schema of t does not fit"),
    "a second data loss before the decision": (
        lambda: [push_pb2.PublisherFrame(data_loss=LOSS)] * 2,
        2, True, "data_loss.flow: another one is not decided yet",
    ),
    "batches of a byte": (
        lambda: (frames.batch(1, 1, i, b"\n") for i in range(1, 60_000)),
        2000, True, "1024 batches are in flight, with 1024 bytes",
    ),
    "a body of empty updates": (
        lambda: frames.parts(1, 1, 1, EMPTY_UPDATES, 64 << 10),
        16, True, "batch body: more than 524288 fields in 8388608 bytes",
    ),
    "a long shard": (lambda: assigned(shard="s" * 5000), 1, False, "assign.shard: longer than 4096"),
    "a long reason": (
        lambda: assigned(rolled_back="x" * 1001), 1, False, "assign.rolled_back: longer than 1000",
    ),
    "a long list": (lambda: assigned(skip=[f"a:{i}:0" for i in range(100_000)]), 1, False, "shard t does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_costs_its_publisher_the_stream_and_leaves_nothing(what: str) -> None:
    given, at_once, is_open, ends = FLOODS[what]
    async with attacked(credit=64 << 10, buffer=MIB) as (running, thief, beside):
        if is_open:
            await opened(thief)
        assert ends in await flood(thief, given(), at_once)
        await others_are_not_affected(running, beside)
        most = 4 * MIB // FLOW_BYTES + 2
        assert len(running._shards._shards) < most
        assert len(running._shards.workers()) < most


async def test_invented_schemas_cost_their_publisher_the_stream() -> None:
    def wide(i: int) -> Schema:
        return Schema("invented", (Column("id", "int"),), (Column(f"{i:06}" * 150_000, "text"),))

    async with attacked() as (running, thief, beside):
        await opened(thief)
        why = await flood(thief, (frames.schema(wide(i)) for i in range(200)), at_once=1)
        assert "schema 0x" in why
        await others_are_not_affected(running, beside)
        await eventually(lambda: len(running._streams._open) == 1, "the stranger's stream is over")
        gc.collect()
        kept = [one for one in gc.get_objects() if type(one) is Schema and one.table == "invented"]
        assert not kept  # also not by the shards that were assigned on that stream


@pytest.mark.parametrize("kind", ["notices", "datamarkers", "datamarkers with long texts"])
async def test_frames_that_use_no_credit_are_counted(kind: str) -> None:
    hang = asyncio.Event()

    class Hung(Recorder):
        async def on_update(self, update: Update) -> None:
            if update.shard == "theirs":
                await hang.wait()
            await super().on_update(update)

    def given(number: int) -> push_pb2.PublisherFrame:
        if kind == "notices":
            notice = push_pb2.ShardNotice(flow=1, epoch=1, kind=push_pb2.ShardNotice.REPLAY_BEGIN)
            return push_pb2.PublisherFrame(notice=notice)
        text = "x" * (10_000 if "long" in kind else 0)
        return frames.datamarker(1, 1, replace(marker_at(number), delivered=f"{number}{text}"))

    async with attacked(Hung(), handler_timeout=600, max_state=2 * MIB) as (running, thief, beside):
        await opened(thief)
        await thief.push(1, 1)
        why = await flood(thief, map(given, range(1, 100_000)))
        hang.set()
        assert "what waits for shard theirs does not fit" in why
        await others_are_not_affected(running, beside)


async def test_half_sent_batches_over_their_credit_share_one_bound() -> None:
    """Each flow may send one batch over its credit; what several begin is bounded, and sent again when there is
    room."""
    async with attacked(max_update=MIB, credit=64 << 10) as (running, thief, beside):
        assert running._shards.large.limit == 4 * MIB
        for flow in range(1, 6):
            await thief.send(frames.assign(flow, 1, "app", f"t{flow}", marker_at(0)))
            await thief.next("accepted")
            part = push_pb2.Part(flow=flow, epoch=1, number=1, total_bytes=MIB + 1, data=b"x")
            await thief.send(push_pb2.PublisherFrame(part=part))
        failed = (await thief.next("failed")).failed
        assert (failed.flow, failed.reason) == (5, push_pb2.Failed.RESEND)
        assert "a batch of 1048577 bytes does not fit" in failed.message
        assert running._shards.large.used < 4 * MIB
        await thief.send(frames.assign(6, 2, "app", "t5", marker_at(0)))  # what an honest publisher does then
        await thief.next("accepted")
        await beside.goes_on()


async def test_a_long_name_of_the_publisher_is_refused() -> None:
    async with serving(Recorder()) as running, dialled(running.address) as thief:
        await thief.send(frames.hello("app", "one", publisher="x" * MIB))
        assert "hello.publisher: longer than 1000 characters" in (await parting(thief)).message


async def test_a_compressed_message_does_not_inflate() -> None:
    """64 MiB of zeros are 65 KiB on the wire; gRPC stops at the largest message that is taken."""
    async with attacked() as (running, _, beside), dialled(running.address, compression=grpc.Compression.Gzip) as bomb:
        await bomb.send(frames.hello("app", "one"))
        await bomb.next("welcome")
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await bomb.call.write(bytes(64 * MIB))
        with suppress(grpc.aio.AioRpcError):
            await bomb.end()
        assert await bomb.call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await others_are_not_affected(running, beside)


async def test_many_streams_of_one_publisher_count_together(authority: Authority) -> None:
    one, db1, db2 = [await asyncio.to_thread(authority.issue, name) for name in ("one", "db1", "db2")]
    recorder = Recorder()
    async with serving(recorder, tls=one, publishers=["db1", "db2"], max_state=2 * MIB) as running:
        async with AsyncExitStack() as stack:
            honest = await stack.enter_async_context(dialled(running.address, db1))
            await honest.open(heartbeat_ms=60_000)
            beside = Beside(honest, recorder)
            refused = 0
            for _ in range(2 * MIB // STREAM_BYTES):
                thief = await stack.enter_async_context(dialled(running.address, db2))
                await thief.send(frames.hello("app", "one", heartbeat_ms=60_000))
                try:
                    await thief.next("welcome")
                except AssertionError:
                    refused += 1
            assert refused
            assert running._shards.state.used <= 2 * MIB
            await beside.goes_on()
