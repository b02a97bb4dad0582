"""Listening for HTTP: on loopback as it is, beyond it only with TLS and certificates on both sides."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wormhole.config import TlsFiles
from wormhole.errors import ConfigError
from wormhole.http_connections import Connections
from wormhole.http_guard import protect
from wormhole.tls import check_listen, is_loopback

__all__ = ["MOST_CONNECTIONS", "HttpServer", "client_context", "serve", "url"]

MOST_CONNECTIONS: Final = 100
"""At a time, of one server: each takes a file descriptor that the process needs for its work."""

_CLOSE_S: Final = 1.0


class HttpServer:
    """A server that listens. ``address``: ``host:port`` with the port that it has."""

    def __init__(self, runner: web.AppRunner, listening: asyncio.Server, address: str) -> None:
        self.address = address
        self._runner = runner
        self._listening = listening

    async def close(self) -> None:
        """Stop listening, and end what is being answered soon; idempotent."""
        self._listening.close()
        await self._runner.cleanup()


class _Ours(logging.Filter):
    """What a client sends that is no HTTP is its fault, and answered: a traceback for each would fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger(__name__)
_log.addFilter(_Ours())


async def serve(
    app: web.Application,
    listen: str,
    *,
    tls: TlsFiles | None = None,
    insecure: bool = False,
    setting: str = "listen",
    names: Collection[str] = (),
) -> HttpServer:
    """Serve ``app`` at ``listen`` (``host:port``; port 0 takes a free one). ``setting`` names what to change when that cannot be.

    Only names of this host, and ``names``, are answered (:mod:`wormhole.http_guard`). Beyond loopback it speaks HTTPS and demands a certificate of
    the same authority, unless ``insecure``. Raises :class:`~wormhole.errors.ConfigError`.
    """
    check_listen(listen, tls, insecure, setting=setting)
    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    protect(app, [socket.gethostname(), bare, *names])
    context = None if tls is None or is_loopback(listen) else await asyncio.to_thread(_server_context, tls)
    connections = Connections(MOST_CONNECTIONS)
    app.middlewares.insert(0, connections.middleware)
    runner = web.AppRunner(app, access_log=None, logger=_log, handle_signals=False, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    answering = runner.server
    assert answering is not None

    try:
        listening = await asyncio.get_running_loop().create_server(
            connections.factory(answering, context), bare, int(port)
        )
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f'{setting} = "{listen}": {error.strerror or error}', hint="use a free port, or port 0"
        ) from error
    return HttpServer(runner, listening, f"{host}:{listening.sockets[0].getsockname()[1]}")


def url(address: str, tls: TlsFiles | None, path: str = "") -> str:
    """Where a server that :func:`serve` started with the same ``tls`` answers."""
    scheme = "http" if tls is None or is_loopback(address) else "https"
    return f"{scheme}://{address}{path}"


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """For asking another process of the same authority; its certificate names a role, not an address. Reads files, raises
    :class:`~wormhole.errors.ConfigError`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, tls)


def _server_context(tls: TlsFiles) -> ssl.SSLContext:
    return _context(ssl.PROTOCOL_TLS_SERVER, tls)


def _context(protocol: int, tls: TlsFiles) -> ssl.SSLContext:
    """Both sides show a certificate of the authority."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(tls.cert, tls.key)
        context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"[tls]: cert, key or ca cannot be used: {error}", hint="each names a PEM file that this process can read"
        ) from error
    return context
