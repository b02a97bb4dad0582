"""The open connections of one HTTP server: bounded in number and bytes, and always with a place for a health check.

A client can open connections and say nothing, half of a request or half of a handshake, ask for much and read slowly,
or ask so often that all others wait; and a process whose health check is not answered is restarted. So only a
connection whose request is being answered keeps its place: any other is closed after a while, and at once when a new
one finds no place (the one that has waited longest goes). Some places are kept for :data:`HEALTH`: when only these are
left, other requests are refused at once.
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
"""Paths of which the answer costs nothing: they are answered however many other requests are."""

_IDLE_S: Final = 10.0
_KEPT: Final = 20
_REQUEST_BYTES: Final = 64 << 10
_UNSENT_BYTES: Final = 16 << 20


class Connections:
    """``answering`` makes the protocol of a connection. ``most``: connections at a time, ``kept``: so many of them are
    not for requests other than :data:`HEALTH`. ``idle_s``: how long one may be open without a whole request, or until
    its answer is read. At most 64 KiB are taken of a request, and answers that are not read hold at most 16 MiB, plus
    one each that are just being made; who exceeds this loses the connection.
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
        """What makes the protocol of each connection, for ``loop.create_server`` without TLS: a handshake takes a place
        here as well, with the ``context`` of its time."""
        return lambda: _Connection(self, answering(), None if context is None else context())

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Marks the connection of a request as answered while ``handler`` runs."""
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
            return await handler(request)  # the client has gone
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
        """End those that do not read their answers, the one that has waited longest first."""
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
        """Give it a place, that of another one if need be."""
        if len(self) >= self.most:
            if not self._idle:
                transport.abort()
                return
            cast("asyncio.Transport", next(iter(self._idle))).abort()
            del self._idle[next(iter(self._idle))]
        self._idle[transport] = connection
        connection.idle()

    def secured(self, plain: asyncio.BaseTransport, transport: asyncio.Transport) -> bool:
        """The handshake is over: the place is that of ``transport`` from now on. False: it was lost meanwhile."""
        connection = self._idle.pop(plain, None)
        if connection is not None:
            self._idle[transport] = connection
        return connection is not None

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """Its place is free."""
        self._idle.pop(transport, None)
        self._answered.pop(transport, None)


class _Connection(asyncio.Protocol):
    """Hands everything on to aiohttp's protocol, and closes what sends no whole request in time, or too large a one."""

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
        """What came between the end of the handshake and the report of it; ``None``: there is none to wait for."""
        self._securing: asyncio.Task[None] | None = None

    def idle(self) -> None:
        """From now on a whole request has to come."""
        self.answered()
        assert self._transport is not None
        self._room = _REQUEST_BYTES
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.idle_s, self._transport.abort)

    def answered(self) -> None:
        """A request has come."""
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
        with suppress(OSError):  # a client without a certificate, with a foreign one, that speaks no TLS, or has gone
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
