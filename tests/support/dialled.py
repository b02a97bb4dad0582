"""A publisher's end of one stream over real gRPC, which sends what its test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from subscriber_sdk.testing import Change, body_of, frames, marker_at, update
from tests.support.eventually import patience
from wormhole.config import TlsFiles
from wormhole.host.tls import target_options
from wormhole.host.trust import Trust
from wormhole.wire.v1 import push_pb2

_METHOD = "/wormhole.wire.v1.Subscriber/Push"

# gRPC joins its poller thread when its last object goes, which would count as blocking whichever test that falls into.
grpc.aio.init_grpc_aio()


class Dialler:
    """A publisher's end of one stream."""

    def __init__(
        self, channel: grpc.aio.Channel, *, wait: bool = False, compression: grpc.Compression | None = None
    ) -> None:
        self.call: Any = channel.stream_stream(_METHOD)(wait_for_ready=wait, compression=compression)
        self._frames: list[push_pb2.SubscriberFrame] = []

    async def send(self, *given: push_pb2.PublisherFrame) -> None:
        await self.call.write(push_pb2.PublisherMessage(frames=given).SerializeToString())

    async def next(self, kind: str) -> push_pb2.SubscriberFrame:
        """The next frame of ``kind``; others are passed over."""
        async with patience():
            while True:
                while self._frames:
                    frame = self._frames.pop(0)
                    if frame.WhichOneof("kind") == kind:
                        return frame
                data = await self.call.read()
                assert data is not grpc.aio.EOF, f"the stream ended before {kind}"
                self._frames.extend(push_pb2.SubscriberMessage.FromString(data).frames)

    async def end(self) -> grpc.StatusCode:
        """Wait for the subscriber's end of the stream."""
        async with patience():
            while await self.call.read() is not grpc.aio.EOF:
                pass
            code: grpc.StatusCode = await self.call.code()
            return code

    async def open(
        self,
        application: str = "app",
        *,
        heartbeat_ms: int = 5000,
        flow: int = 1,
        epoch: int = 1,
        shard: str = "s",
        dataset: str = "",
    ) -> None:
        await self.send(frames.hello(application, "one", heartbeat_ms=heartbeat_ms, dataset=dataset))
        await self.next("welcome")
        await self.send(frames.assign(flow, epoch, application, shard, marker_at(0)))
        await self.next("accepted")

    async def push(self, number: int, *keys: int, epoch: int = 1, flow: int = 1) -> None:
        await self.commit(number, *(update("t", key=key) for key in keys), epoch=epoch, flow=flow)

    async def commit(self, number: int, *changes: Change, epoch: int = 1, flow: int = 1) -> None:
        """One transaction of one table, and a datamarker."""
        await self.send(
            frames.schema(changes[0].schema),
            frames.batch(flow, epoch, number, body_of(changes, number=number)),
            frames.datamarker(flow, epoch, marker_at(number)),
        )


@contextlib.asynccontextmanager
async def dialled(
    address: str,
    tls: TlsFiles | None = None,
    *,
    wait: bool = False,
    compression: grpc.Compression | None = None,
) -> AsyncIterator[Dialler]:
    """``wait``: the subscriber may still be starting."""
    if tls is None:
        channel = grpc.aio.insecure_channel(address, options=[("grpc.max_reconnect_backoff_ms", 100)])
    else:
        credentials = (await asyncio.to_thread(Trust, tls)).channel_credentials()
        channel = grpc.aio.secure_channel(address, credentials, options=target_options("one"))
    try:
        yield Dialler(channel, wait=wait, compression=compression)
    finally:
        await channel.close()
