"""``/metrics`` and ``/healthz`` of a process that is a subscriber: an archiver, a sink."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from aiohttp import web

from wormhole.config import TlsFiles
from wormhole.host import http_server
from wormhole.host.tls import open_trust
from wormhole.metrics import Sample
from wormhole.metrics.text import CONTENT_TYPE, render

__all__ = ["metrics_endpoint"]

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def metrics_endpoint(
    listen: str, samples: Callable[[], Iterable[Sample]], tls: TlsFiles | None, *, insecure: bool
) -> AsyncIterator[str]:
    """While the block runs, answer at ``listen`` (``host:port``; port 0 takes a free one). Yields the address.
    ``samples``: the present values.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=render(samples()), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    trust = await asyncio.to_thread(open_trust, tls)
    server = await http_server.serve(app, listen, trust=trust, insecure=insecure, setting="--http")
    _log.info("metrics at %s", http_server.url(server.address, tls, "/metrics"))
    try:
        yield server.address
    finally:
        await server.close()
