"""A subscriber that says only what the test tells it to: a real gRPC server on loopback, the protocol by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from tests.support.eventually import patience
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.push.attaching import METHOD, Attaching
from wormhole.push.session import MAX_VERSION
from wormhole.wire.body import parse_body
from wormhole.wire.markers import marker_to_message
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2

_UNASKED = frozenset({"heartbeat", "schema"})


class ScriptedSubscriber:
    """``welcomes``: answer hello by itself; ``reads``: cleared, nothing more is read; ``wire``: every byte that came.

    Only the newest connection is listened to."""

    def __init__(self, application: str, name: str, *, max_frame: int = 1 << 20) -> None:
        self.application, self.name = application, name
        self.welcomes = True
        self.verifies = False
        self.takes_ranges = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.max_frame = max_frame
        self.address = ""
        self.connections = 0
        self.largest = 0
        self.wire = bytearray()
        self.heartbeats = 0
        self._schemas: dict[int, Schema] = {}
        self._received: asyncio.Queue[push_pb2.PublisherFrame] = asyncio.Queue()
        self._context: Any = None
        self._writing = asyncio.Lock()
        self._end = asyncio.Event()
        self._readers: set[asyncio.Task[None]] = set()

    def info(self, *, started: float = 1.0) -> SubscriberInfo:
        return SubscriberInfo(self.application, self.name, self.address, 1.0, started)

    async def serve(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """The gRPC method: one call."""
        self.connections += 1
        self._context, self._end = context, asyncio.Event()
        self._schemas.clear()
        while not self._received.empty():
            self._received.get_nowait()
        reader = asyncio.create_task(self._read(requests, context))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        ended = asyncio.create_task(self._end.wait())
        try:
            await asyncio.wait([reader, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, ended):
                task.cancel()
            await asyncio.gather(reader, ended, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for data in requests:
            if context is not self._context:
                return  # what was on its way when the next connection came
            self.largest = max(self.largest, len(data))
            self.wire += data
            for frame in push_pb2.PublisherMessage.FromString(data).frames:
                kind = frame.WhichOneof("kind")
                if kind == "schema":
                    self._schemas[frame.schema.id] = Schema.from_canonical(frame.schema.canonical)
                if kind == "heartbeat":
                    self.heartbeats += 1
                if kind == "hello" and self.welcomes:
                    await self.welcome()
                if kind not in _UNASKED:
                    self._received.put_nowait(frame)
            await self.reads.wait()

    async def attach(self, address: str, instance: str = "1") -> None:
        """Dial the publisher, and serve one call to its end."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options) as channel:
            who = Attaching(self.application, self.name, instance)
            call: Any = channel.stream_stream(METHOD)(metadata=who.to_metadata())
            try:
                await self.serve(call, call)
            finally:
                call.cancel()

    async def close(self) -> None:
        """End what still reads: gRPC stops without waiting for the calls that it cancels."""
        readers = tuple(self._readers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    def hang_up(self) -> None:
        """End the call from this side, without a word."""
        self._end.set()

    # -- what it hears

    async def hears(self, kind: str) -> push_pb2.PublisherFrame:
        """The next frame, which has to be a ``kind``; heartbeats and schemas are passed over, and the datamarker
        that a revocation comes with. A hello opens a connection: what the one before it may still say is passed over
        too."""
        async with patience():
            frame = await self._received.get()
            while (kind == "hello" and frame.WhichOneof("kind") != "hello") or (
                kind == "revoke" and frame.WhichOneof("kind") == "datamarker"
            ):
                frame = await self._received.get()
        assert frame.WhichOneof("kind") == kind, f"expected {kind}, heard: {frame}"
        return frame

    async def hears_later(self, kind: str) -> push_pb2.PublisherFrame:
        """The first ``kind`` from now on."""
        async with patience():
            while True:
                frame = await self._received.get()
                if frame.WhichOneof("kind") == kind:
                    return frame

    def heard_nothing(self, but: str = "") -> bool:
        """Whether no frame waits to be looked at, except of the kind ``but``."""
        waiting = [self._received.get_nowait() for _ in range(self._received.qsize())]
        for frame in waiting:
            self._received.put_nowait(frame)
        return all(frame.WhichOneof("kind") == but for frame in waiting)

    def updates(self, frame: push_pb2.PublisherFrame) -> list[Update]:
        """What a batch holds."""
        batch = frame.batch
        return Batch(parse_body(batch.body), "", batch.epoch, batch.replayed, self._schemas.__getitem__).updates()

    # -- what it says

    async def says(self, **frame: Any) -> None:
        """Send one frame, by its kind."""
        message = push_pb2.SubscriberMessage(frames=[push_pb2.SubscriberFrame(**frame)])
        await self.says_bytes(message.SerializeToString())

    async def says_bytes(self, data: bytes) -> None:
        """Send a message, whatever it is."""
        async with self._writing:  # gRPC takes one write of a call at a time
            await self._context.write(data)

    async def welcome(self) -> None:
        welcome = push_pb2.Welcome(
            version=MAX_VERSION,
            application=self.application,
            subscriber=self.name,
            max_frame_bytes=self.max_frame,
            verifies=self.verifies,
            takes_ranges=self.takes_ranges,
        )
        await self.says(welcome=welcome)

    async def accepts(
        self,
        assign: push_pb2.PublisherFrame,
        *,
        credit: int = 1 << 20,
        have: Datamarker | None = None,
        move: int = 0,
    ) -> push_pb2.Assign:
        """Take the flow of an assign frame; returns the assign. ``move``: what the application stored with ``have``."""
        flow = assign.assign
        accepted = push_pb2.Accepted(flow=flow.flow, epoch=flow.epoch, credit=credit, move=move)
        if have is not None:
            accepted.have.CopyFrom(marker_to_message(have))
        await self.says(accepted=accepted)
        return flow

    async def processed(self, frame: push_pb2.PublisherFrame) -> None:
        """Progress for a batch."""
        batch = frame.batch
        await self.says(progress=push_pb2.Progress(flow=batch.flow, epoch=batch.epoch, number=batch.number))

    async def acks(self, frame: push_pb2.PublisherFrame) -> None:
        """Acknowledge an offered datamarker."""
        offered = frame.datamarker
        await self.says(ack=push_pb2.Ack(flow=offered.flow, epoch=offered.epoch, marker=offered.marker))

    async def releases(self, flow: push_pb2.Assign) -> None:
        await self.says(released=push_pb2.Released(flow=flow.flow, epoch=flow.epoch))


@asynccontextmanager
async def scripted_subscriber(
    application: str,
    name: str,
    *,
    service: str = "wormhole.wire.v1.Subscriber",
    credentials: grpc.ServerCredentials | None = None,
    **options: Any,
) -> AsyncIterator[ScriptedSubscriber]:
    """A running one. ``service``: the gRPC service that it offers; ``credentials``: for TLS."""
    subscriber = ScriptedSubscriber(application, name, **options)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler: Any = grpc.stream_stream_rpc_method_handler(subscriber.serve)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Push": handler}),))
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    subscriber.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield subscriber
    finally:
        await server.stop(0)
        await subscriber.close()
