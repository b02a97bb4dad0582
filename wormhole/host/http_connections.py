"""Bounds the open connections of one HTTP server in number and bytes, and keeps places for health checks.

A client can open connections and send nothing, half of a request or half of a handshake. It can request much and read
slowly, or send so many requests that all others wait. A process whose health check is not answered is restarted. So
only a connection whose request is being answered keeps its place. Any other connection is closed after a timeout. When
a new connection finds no place, the one that has waited longest is closed at once. Some places are kept for
:data:`HEALTH`: when only these are left, other requests are refused at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, cast

from aiohttp import web

__all__ = ["HEALTH", "Connections"]

HEALTH: Final = frozenset({"/healthz", "/readyz"})
"""Paths whose answer costs nothing: they are answered, however many other requests there are."""

_IDLE_S: Final = 10.0
_KEPT: Final = 20
_REQUEST_BYTES: Final = 64 << 10
_UNSENT_BYTES: Final = 16 << 20


class Connections:
    """The connections of a server.

    ``answering`` makes the protocol of a connection. ``most``: limit of connections at a time. ``kept``: how many of
    them are reserved for requests of :data:`HEALTH`. ``idle_s``: how long a connection may be open without a whole
    request, or until its answer is read. At most 64 KiB of a request are read. Answers that are not read hold at most
    16 MiB, plus those that are just being made, one for each connection. A connection that exceeds a limit is closed.
    """

    def __init__(self, most: int, idle_s: float = _IDLE_S, kept: int = _KEPT) -> None:
        self.most = most
        self.idle_s = idle_s
        self._busy_most = most - kept
        self._busy = 0
        self._answered: dict[asyncio.BaseTransport, _Connection] = {}
        self._idle: dict[asyncio.BaseTransport, _Connection] = {}  # the one that has waited longest comes first

    def __len__(self) -> int:
        return len(self._answered) + len(self._idle)

    def factory(
        self, answering: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext] | None = None
    ) -> Callable[[], asyncio.Protocol]:
        """A factory for the protocol of each connection, for ``loop.create_server`` without TLS. A handshake takes a
        place here as well; it uses the ``context`` at its time.
        """
        return lambda: _Connection(self, answering(), None if context is None else context())

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Mark the connection of a request as answered while ``handler`` runs."""
        if request.path in HEALTH:
            return await self._answer(request, handler)
        if self._busy >= self._busy_most:
            text = f"{self._busy_most} requests are being answered; ask again later\n"
            refused = web.Response(status=503, text=text, headers={"Retry-After": "1"})
            refused.force_close()
            return refused
        self._busy += 1
        try:
            return await self._answer(request, handler)
        finally:
            self._busy -= 1

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        transport = request.transport
        connection = None if transport is None else self._idle.pop(transport, None)
        if connection is None or transport is None:
            return await handler(request)  # the client has disconnected
        self._answered[transport] = connection
        connection.answered()
        self._bound_unsent()
        try:
            return await handler(request)
        finally:
            if self._answered.pop(transport, None) is not None:
                self._idle[transport] = connection
                connection.idle()

    def _bound_unsent(self) -> None:
        """End connections that do not read their answers. The one that has waited longest is first."""
        unsent = {one: one.get_write_buffer_size() for one in cast("dict[asyncio.Transport, _Connection]", self._idle)}
        held = sum(unsent.values())
        for transport, size in unsent.items():
            if held <= _UNSENT_BYTES:
                return
            if size:
                held -= size
                del self._idle[transport]
                transport.abort()

    def opened(self, transport: asyncio.Transport, connection: _Connection) -> None:
        """Give the connection a place, if necessary the place of another one."""
        if len(self) >= self.most:
            if not self._idle:
                transport.abort()
                return
            cast("asyncio.Transport", next(iter(self._idle))).abort()
            del self._idle[next(iter(self._idle))]
        self._idle[transport] = connection
        connection.idle()

    def secured(self, plain: asyncio.BaseTransport, transport: asyncio.Transport) -> bool:
        """The handshake ended: the place belongs to ``transport`` from now on. Returns false if the connection lost it
        meanwhile.
        """
        connection = self._idle.pop(plain, None)
        if connection is not None:
            self._idle[transport] = connection
        return connection is not None

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """Free the connection's place."""
        self._idle.pop(transport, None)
        self._answered.pop(transport, None)


class _Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol. It closes a connection that sends no whole request in time, or too
    large a request.
    """

    def __init__(
        self, connections: Connections, answering: asyncio.Protocol, context: ssl.SSLContext | None = None
    ) -> None:
        self._connections = connections
        self._answering = answering
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room = _REQUEST_BYTES
        self._early: list[bytes] | None = None
        """The bytes that arrive after the handshake and before its report; ``None``: no handshake is in progress."""
        self._securing: asyncio.Task[None] | None = None

    def idle(self) -> None:
        """Start the timeout within which a whole request has to arrive."""
        self.answered()
        assert self._transport is not None
        self._room = _REQUEST_BYTES
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.idle_s, self._transport.abort)

    def answered(self) -> None:
        """Stop the timeout: a request has arrived."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._context is None:
            self._answering.connection_made(transport)
        self._connections.opened(self._transport, self)
        if self._context is not None:
            self._early = []
            self._securing = asyncio.get_running_loop().create_task(self._secure(self._transport, self._context))

    async def _secure(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        secure = None
        with suppress(OSError):  # the client has no valid certificate, uses no TLS, or has disconnected
            secure = await loop.start_tls(plain, self, context, server_side=True)
        if secure is None or not self._connections.secured(plain, secure):
            self.answered()
            self._connections.closed(plain)
            plain.abort()
            return
        self._transport = secure
        self.idle()
        self._answering.connection_made(secure)
        early, self._early = self._early or [], None
        for data in early:
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.answered()
        if self._transport is not None:
            self._connections.closed(self._transport)
        if self._early is None:
            self._answering.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
            return
        self._room -= len(data)
        if self._room < 0:
            assert self._transport is not None
            self._transport.abort()
            return
        self._answering.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._early is not None else self._answering.eof_received()

    def pause_writing(self) -> None:
        self._answering.pause_writing()

    def resume_writing(self) -> None:
        self._answering.resume_writing()
