"""Asks the running publisher how it is: which flow travels with which caravan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio

from wormhole.host.ready_file import read_ready
from wormhole.wire.v1 import admin_pb2

__all__ = ["Watch"]

_EVERY_S = 0.1
_TIMEOUT_S = 1.0
_DESCRIBE = "/wormhole.wire.v1.Admin/Describe"


class Watch:
    """Polls the publisher whose ready file is at ``path``. ``seen`` is called with each answer, on the event loop."""

    def __init__(self, path: Path, seen: Callable[[admin_pb2.PublisherStatus], None]) -> None:
        self.caravans_most = 0
        self.pid = 0
        """Process id of the publisher that answered last; 0: none did yet."""
        self._path = path
        self._seen = seen

    async def run(self) -> None:
        """Poll until cancelled."""
        channel: grpc.aio.Channel | None = None
        dialled = ""
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                ready = await asyncio.to_thread(read_ready, self._path)
                if ready is None:
                    continue  # none runs just now
                if ready.admin != dialled:
                    if channel is not None:
                        await channel.close()
                    channel, dialled = grpc.aio.insecure_channel(ready.admin), ready.admin
                assert channel is not None
                await self._ask(channel)
        finally:
            if channel is not None:
                await channel.close()

    async def _ask(self, channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary(
            _DESCRIBE,
            request_serializer=admin_pb2.DescribeRequest.SerializeToString,
            response_deserializer=admin_pb2.PublisherStatus.FromString,
        )
        try:
            status: admin_pb2.PublisherStatus = await call(admin_pb2.DescribeRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return  # it is being killed or started: the next answer will tell
        self.pid = status.pid
        self.caravans_most = max(self.caravans_most, len(status.caravans))
        self._seen(status)
