"""A receiver of webhooks for tests: a real HTTP server, which verifies signatures with the package of Standard
Webhooks, and may answer and behave as badly as a test says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web
from standardwebhooks.webhooks import Webhook

__all__ = ["SECRET", "Request", "WebhookReceiver", "answers_badly"]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Request(NamedTuple):
    """A request whose signature was verified."""

    id: str
    path: str
    body: dict[str, Any]

    @property
    def ids(self) -> list[str]:
        """Those of its records."""
        return [item["id"] for item in self.body["data"]]

    @property
    def keys(self) -> list[int]:
        """The keys of its rows."""
        return [item["key"][0] for item in self.body["data"]]


Answer = Callable[[Request, web.Request], Awaitable[web.StreamResponse]]


@dataclass
class WebhookReceiver:
    """``statuses``: of the next answers, then 204. ``headers``: of those answers. ``answer``: makes the answer instead.
    ``requests``: all, in order. A request whose signature ``secret`` does not verify gets 401.
    """

    secret: str = SECRET
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    port: int = 0
    _runner: web.AppRunner | None = None

    async def start(self, port: int = 0, context: ssl.SSLContext | None = None) -> WebhookReceiver:
        """Listen on 127.0.0.1."""
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http{'' if context is None else 's'}://127.0.0.1:{self.port}/hook?token=unguessable"
        return self

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def ids(self) -> list[str]:
        """Those of all records that were received, in order."""
        return [id_ for request in self.requests for id_ in request.ids]

    def write_secret(self, folder: Path) -> Path:
        """A file with the secret."""
        path = folder / "receiver.secret"
        path.write_text(f"{self.secret}\n")
        path.chmod(0o600)
        return path

    async def _handle(self, given: web.Request) -> web.StreamResponse:
        body = await given.read()
        try:
            Webhook(self.secret).verify(body, dict(given.headers))
        except Exception:
            return web.Response(status=401)
        request = Request(given.headers["webhook-id"], given.path, json.loads(body))
        self.requests.append(request)
        if self.answer is not None:
            return await self.answer(request, given)
        if not self.statuses:
            return web.Response(status=204)
        return web.Response(status=self.statuses.pop(0), headers=self.headers)


@contextlib.asynccontextmanager
async def answers_badly(
    first: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    reads: bool = True,
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server whose first connection is handled by ``first`` and then closed. Later ones answer 200. Yields its URL,
    and the heads of all requests. ``reads``: whether bodies are read before that.
    """
    heads: list[bytes] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            (length,) = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            if reads:
                await reader.readexactly(int(length))
            if len(heads) == 1:
                await first(reader, writer)
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
        writer.transport.abort() if len(heads) == 1 else writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", heads
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
