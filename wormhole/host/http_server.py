"""Listening for HTTP: on loopback without TLS, beyond it only with TLS and certificates on both sides."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wormhole.host.http_connections import Connections
from wormhole.host.http_guard import protect
from wormhole.host.listening import cannot_listen
from wormhole.host.tls import check_listen, is_loopback

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["MOST_CONNECTIONS", "HttpServer", "serve", "url"]

MOST_CONNECTIONS: Final = 100
"""The limit of the connections of one server. Each takes a file descriptor, which the process may need elsewhere."""

_CLOSE_S: Final = 1.0


class HttpServer:
    """A server that listens. ``address``: ``host:port`` with its actual port."""

    def __init__(
        self, runner: web.AppRunner, listening: asyncio.Server, address: str, following: asyncio.Task[None] | None
    ) -> None:
        self.address = address
        self._runner = runner
        self._listening = listening
        self._following = following

    async def close(self) -> None:
        """Stop listening, and end the requests in progress soon; idempotent."""
        if self._following is not None:
            self._following.cancel()
        self._listening.close()
        await self._runner.cleanup()


class _Ours(logging.Filter):
    """Drops records about clients that send no HTTP. They are answered, and a traceback for each would fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger(__name__)
_log.addFilter(_Ours())


async def serve(
    app: web.Application,
    listen: str,
    *,
    trust: Trust | None = None,
    insecure: bool = False,
    setting: str = "listen",
    names: Collection[str] = (),
) -> HttpServer:
    """Serve ``app`` at ``listen`` (``host:port``; port 0 takes a free one). ``setting``: the setting that an error
    names.

    Only names of this host, and ``names``, are answered (:mod:`wormhole.host.http_guard`). Beyond loopback the server
    uses HTTPS and demands a certificate that ``trust`` accepts, unless ``insecure``. Raises
    :class:`~wormhole.model.errors.ConfigError`.
    """
    check_listen(listen, trust, insecure, setting=setting)
    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    protect(app, [socket.gethostname(), bare, *names])
    handshakes = None
    if trust is not None and not is_loopback(listen):
        handshakes = await asyncio.to_thread(_Handshakes, trust)
        app.middlewares.append(handshakes.middleware)
    connections = Connections(MOST_CONNECTIONS)
    app.middlewares.insert(0, connections.middleware)
    runner = web.AppRunner(app, access_log=None, logger=_log, handle_signals=False, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    answering = runner.server
    assert answering is not None

    try:
        listening = await asyncio.get_running_loop().create_server(
            connections.factory(answering, None if handshakes is None else handshakes.context), bare, int(port)
        )
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(listen, error, setting=setting) from None
    following = None if handshakes is None else asyncio.create_task(handshakes.follow(), name="certificates of HTTP")
    return HttpServer(runner, listening, f"{host}:{listening.sockets[0].getsockname()[1]}", following)


def url(address: str, tls: object | None, path: str = "") -> str:
    """The URL of a server that :func:`serve` started. ``tls`` ``None``: without TLS."""
    scheme = "http" if tls is None or is_loopback(address) else "https"
    return f"{scheme}://{address}{path}"


class _Handshakes:
    """Lets each handshake use the TLS files as they are when it begins."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._newest = trust.context(ssl.PROTOCOL_TLS_SERVER)

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. It does not read the files, because it is called on the event loop."""
        return self._newest

    async def follow(self) -> None:
        """Read the files when they change, until cancelled."""
        while True:
            await asyncio.sleep(self._trust.look_s)
            self._newest = await asyncio.to_thread(self._trust.context, ssl.PROTOCOL_TLS_SERVER)

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse a request if its client's certificate is no longer accepted: connections outlive requests."""
        connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        if connection is not None and (why := self._trust.refuses_shown(connection.getpeercert(binary_form=True))):
            raise web.HTTPForbidden(text=f"{why}\n", headers={"Connection": "close"})
        return await handler(request)
