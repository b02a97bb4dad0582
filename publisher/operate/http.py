"""The publisher's HTTP server: ``/metrics``, ``/healthz``, ``/readyz`` and ``/status``.

``/healthz`` answers as long as the event loop runs. Without an answer the monitor restarts the process. ``/readyz`` is
503 with the reasons while no progress is made, and 200 with the name of the owner while another publisher owns the log.
``/status`` returns the admin service's ``Describe`` to this host's monitor, so that the monitor needs no gRPC.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from publisher.operate.operated import Operated
from wormhole.host.http_server import HttpServer, serve
from wormhole.metrics.text import CONTENT_TYPE, render
from wormhole.model.visible import visible

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["serve_http"]


async def serve_http(operated: Operated, listen: str, trust: Trust | None, insecure: bool) -> HttpServer:
    """Serve at ``listen``. Raises :class:`~wormhole.model.errors.ConfigError` if the address cannot be taken."""

    async def metrics(request: web.Request) -> web.Response:
        samples = await operated.metrics.collect()
        # With thousands of flows the text takes long to make, so a thread makes it and not the event loop.
        text = await asyncio.to_thread(lambda: render(samples))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = operated.readiness.found()
        lines = found.reasons or (found.stands_by or "ready",)
        text = "".join(f"{visible(line)}\n" for line in lines)
        return web.Response(text=text, status=200 if found.ready else 503)

    async def described(request: web.Request) -> web.Response:
        status = await operated.reports.whole()
        return web.Response(body=status.SerializeToString(), content_type="application/x-protobuf")

    app = web.Application()
    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/status", described),
        ]
    )
    return await serve(app, listen, trust=trust, insecure=insecure, setting="publisher.http_listen")
