"""A scripted publisher that clients dial. It accepts streams, on which a case sends its frames."""

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
    """One stream that the client opened. The case that takes the stream sets ``on_frame`` and ``on_end``."""

    def __init__(self, requests: AsyncIterator[bytes], context: Any) -> None:
        self._requests = requests
        self._context = context
        self.metadata: Mapping[str, str | bytes] = dict(context.invocation_metadata() or ())
        self._over = asyncio.Event()
        self.ended = False
        """Whether the client ended the stream."""

    async def send(self, data: bytes) -> None:
        """Send one message. Does nothing if the client ended the stream, which the case then reports."""
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
        """Whether either side has ended the stream."""
        return self.ended or self._over.is_set()

    def cut(self) -> None:
        """End the stream from the publisher's side."""
        self._over.set()

    async def over(self) -> None:
        """Wait for :meth:`cut`."""
        await self._over.wait()


@asynccontextmanager
async def stage(
    take: Callable[[Call], None], credentials: grpc.ServerCredentials | None, refusal: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """Listen, and yield the address. ``take``: called with each stream. ``refusal``: the status and the code with which
    each call is refused; ``None``: calls are accepted."""
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
