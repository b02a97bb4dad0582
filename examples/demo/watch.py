"""Asks the running publisher how it is: which flow travels with which caravan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio

from wormhole.coordination import Coordinator
from wormhole.errors import WormholeError
from wormhole.wire.v1 import admin_pb2

__all__ = ["Watch"]

_EVERY_S = 0.1
_TIMEOUT_S = 1.0
_DESCRIBE = "/wormhole.wire.v1.Admin/Describe"


class Watch:
    """Polls the publisher of one log. ``seen`` is called with each answer, on the event loop."""

    def __init__(self, coordinator: Coordinator, seen: Callable[[admin_pb2.PublisherStatus], None]) -> None:
        self.caravans_most = 0
        self._coordinator = coordinator
        self._seen = seen
        self._pid = 0

    def follow(self, pid: int) -> None:
        """Ask the publisher with this process id from now on; 0: none runs."""
        self._pid = pid

    async def run(self) -> None:
        """Poll until cancelled."""
        channel: grpc.aio.Channel | None = None
        dialled = ""
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                address = await self._address()
                if not address:
                    continue
                if address != dialled:
                    if channel is not None:
                        await channel.close()
                    channel, dialled = grpc.aio.insecure_channel(address), address
                assert channel is not None
                await self._ask(channel)
        finally:
            if channel is not None:
                await channel.close()

    async def _address(self) -> str:
        try:
            infos = await self._coordinator.publishers()
        except WormholeError:
            return ""
        return next((info.address for info in infos if info.pid == self._pid), "")

    async def _ask(self, channel: grpc.aio.Channel) -> None:
        pid = self._pid
        call = channel.unary_unary(
            _DESCRIBE,
            request_serializer=admin_pb2.DescribeRequest.SerializeToString,
            response_deserializer=admin_pb2.PublisherStatus.FromString,
        )
        try:
            status: admin_pb2.PublisherStatus = await call(admin_pb2.DescribeRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return  # it is being killed or started: the next answer will tell
        if pid == self._pid:
            self.caravans_most = max(self.caravans_most, len(status.caravans))
            self._seen(status)
