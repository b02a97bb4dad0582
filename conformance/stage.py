"""A publisher that subscribers dial, and that sends what a case contains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio

from wormhole.push.attaching import METHOD, SERVICE
from wormhole.wire.v1 import push_pb2

__all__ = ["Call", "stage"]

_OPTIONS: Final = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", -1),
]


class Call:
    """One stream that the client opened. ``on_frame`` and ``on_end`` are set by who takes it."""

    def __init__(self, requests: AsyncIterator[bytes], context: Any) -> None:
        self._requests = requests
        self._context = context
        self.metadata: Mapping[str, str | bytes] = dict(context.invocation_metadata() or ())
        self._over = asyncio.Event()
        self.ended = False
        """Whether the client ended it."""

    async def send(self, data: bytes) -> None:
        """One message. A client that ended the stream does not get it, and the case finds what is missing."""
        try:
            await self._context.write(data)
        except (grpc.RpcError, grpc.aio.BaseError):
            self.ended = True
            self._over.set()

    async def frames(self) -> AsyncIterator[push_pb2.SubscriberFrame]:
        """The client's frames, until it ends the stream."""
        try:
            async for data in self._requests:
                for frame in push_pb2.SubscriberMessage.FromString(data).frames:
                    yield frame
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        self.ended = True
        self._over.set()

    @property
    def over_now(self) -> bool:
        """Whether either side ended it."""
        return self.ended or self._over.is_set()

    def cut(self) -> None:
        """End it from the publisher's side."""
        self._over.set()

    async def over(self) -> None:
        """Wait for :meth:`cut`."""
        await self._over.wait()


@asynccontextmanager
async def stage(
    take: Callable[[Call], None], credentials: grpc.ServerCredentials | None, refusal: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """Listen; yields the address. ``take``: called with each stream. ``refusal``: the status and the code with which
    each call is refused."""
    calls: set[Call] = set()

    async def attach(requests: AsyncIterator[bytes], context: Any) -> None:
        if refusal is not None:
            code = (("wormhole-code", refusal["code"]),) if "code" in refusal else ()
            await context.abort(grpc.StatusCode[refusal["status"]], "refused by the case", trailing_metadata=code)
        call = Call(requests, context)
        calls.add(call)
        take(call)
        try:
            await call.over()
        except asyncio.CancelledError:
            call.ended = True
            raise

    server = grpc.aio.server(options=_OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(attach)
    name = METHOD.rpartition("/")[2]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {name: handler}),))
    port = (
        server.add_insecure_port("127.0.0.1:0")
        if credentials is None
        else server.add_secure_port("127.0.0.1:0", credentials)
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        for call in calls:
            call.cut()
        await server.stop(0)
