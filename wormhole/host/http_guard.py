"""Protects every small HTTP server of the product: it answers only to its own names, and its headers forbid a browser
to use an answer elsewhere.

A foreign page can make a browser on this host send requests to loopback. By rebinding its own DNS name it could read
that answer. So a request whose ``Host`` is a name of another server is refused. An IP address cannot be rebound, so a
request with one is always answered.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from aiohttp import web

__all__ = ["host_allowed", "protect"]

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def protect(app: web.Application, names: Collection[str] = ()) -> None:
    """Refuse requests that are not :func:`host_allowed` with 421. Add the headers that an answer's handler did
    not set.
    """
    allowed = frozenset(name.lower().rstrip(".") for name in names)

    @web.middleware
    async def check_host(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not host_allowed(request.headers.get("Host", ""), allowed):
            raise web.HTTPMisdirectedRequest(
                text="this server does not go by that name; ask for it by its address or as localhost\n"
            )
        return await handler(request)

    async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
        for name, text in _HEADERS.items():
            response.headers.setdefault(name, text)

    app.middlewares.append(check_host)
    app.on_response_prepare.append(add_headers)


def host_allowed(header: str, names: Collection[str]) -> bool:
    """Whether a request with this ``Host`` header is answered: any IP address, ``localhost`` and ``names`` (in lower
    case), whatever the port.
    """
    host = header.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.rstrip(".")
    if host == "localhost" or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
