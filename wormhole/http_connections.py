"""The open connections of one HTTP server: bounded in number, and none keeps its place without a request.

A client can open connections and say nothing, or half of a request, and so take every place; a health check would then
be refused, and the process restarted for it. So only a connection whose request is being answered keeps its place: any
other is closed after a while, and at once when a new one finds no place (the one that has waited longest goes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

__all__ = ["Connections"]

_IDLE_S: Final = 10.0


class Connections:
    """``answering`` makes the protocol of a connection. ``most``: connections at a time; one more than that, while each
    of them is being answered, is closed at once. ``idle_s``: how long one may be open without a whole request."""

    def __init__(self, most: int, idle_s: float = _IDLE_S) -> None:
        self.most = most
        self.idle_s = idle_s
        self._answered: dict[asyncio.BaseTransport, _Connection] = {}
        self._idle: dict[asyncio.BaseTransport, _Connection] = {}  # the one that has waited longest comes first

    def __len__(self) -> int:
        return len(self._answered) + len(self._idle)

    def factory(self, answering: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of each connection, for ``loop.create_server``."""
        return lambda: _Connection(self, answering())

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Marks the connection of a request as answered while ``handler`` runs."""
        connection = None if request.transport is None else self._idle.pop(request.transport, None)
        if connection is None or request.transport is None:
            return await handler(request)  # the client has gone
        transport = request.transport
        self._answered[transport] = connection
        connection.answered()
        try:
            return await handler(request)
        finally:
            if self._answered.pop(transport, None) is not None:
                self._idle[transport] = connection
                connection.idle()

    def opened(self, transport: asyncio.Transport, connection: _Connection) -> None:
        """Give it a place, that of another one if need be."""
        if len(self) >= self.most:
            if not self._idle:
                transport.abort()
                return
            cast("asyncio.Transport", next(iter(self._idle))).abort()
            del self._idle[next(iter(self._idle))]
        self._idle[transport] = connection
        connection.idle()

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """Its place is free."""
        self._idle.pop(transport, None)
        self._answered.pop(transport, None)


class _Connection(asyncio.Protocol):
    """Hands everything on to aiohttp's protocol, and closes what sends no whole request in time."""

    def __init__(self, connections: Connections, answering: asyncio.Protocol) -> None:
        self._connections = connections
        self._answering = answering
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def idle(self) -> None:
        """From now on a whole request has to come."""
        self.answered()
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.idle_s, self._transport.abort)

    def answered(self) -> None:
        """A request has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._answering.connection_made(transport)
        self._connections.opened(self._transport, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.answered()
        if self._transport is not None:
            self._connections.closed(self._transport)
        self._answering.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._answering.data_received(data)

    def eof_received(self) -> bool | None:
        return self._answering.eof_received()

    def pause_writing(self) -> None:
        self._answering.pause_writing()

    def resume_writing(self) -> None:
        self._answering.resume_writing()
