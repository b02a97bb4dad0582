"""Bytes that a client sends to an HTTP server of ours: an answer, a refusal (4xx), or a closed connection; never a
500, nor an exception that nobody catches."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from aiohttp import web

from monitor.state import HostState
from monitor.web import add_routes
from tests.fuzz.mutate import mutate
from tests.fuzz.target import Target

_TURNS = 40
_STATUS = re.compile(rb"HTTP/\d\.\d (\d)")
_LINES = (
    "Host: localhost",
    "Host: 127.0.0.1:7480",
    "Host: [::1]:80",
    "Accept: text/event-stream",
    "Accept-Encoding: gzip, deflate",
    "Connection: keep-alive",
    "If-None-Match: *",
    "User-Agent: Prometheus/2.53",
)
_ODD_LINES = (
    b"Connection: close",
    b"Host: evil.example",
    b"Host: localhost:99999999",
    b"Host: [::1",
    b"Host: \xff\xfe",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: -1",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    b"Content-Encoding: gzip",
    b"Content-Encoding: br",
    b"Expect: 100-continue",
    b"Expect: x",
    b"Upgrade: websocket\r\nConnection: upgrade",
    b"Range: bytes=0-99999999999999999999",
    b"If-Modified-Since: Thu, 01 Jan 99999 00:00:00 GMT",
    b"Cookie: a=\x00; =;;=",
    b" folded",
    b"X: " + b"y" * 9000,
    b": no name",
    b"A" * 9000,
)
_PATHS = (
    b"/",
    b"/healthz",
    b"/api/status",
    b"/assets/page.js",
    b"/assets/../../../etc/passwd",
    b"/assets/%2e%2e%2fpasswd",
    b"/assets/\x00",
    b"//evil/",
    b"http://evil/healthz",
    b"*",
    b"evil:443",
    b"/%",
    b"/%ff%fe",
    b"/?" + b"a=b&" * 2000,
    b"/" + b"x" * 9000,
)
_METHODS = (b"GET", b"HEAD", b"POST", b"OPTIONS", b"CONNECT", b"TRACE", b"PRI", b"get", b"G\x00T", b"\xff")
_BODIES = (
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"FFFFFFFFFFFFFFFFF\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"5;a=" + b"b" * 9000,
)


class _Transport(asyncio.Transport):
    """What is written to it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")


class _Server:
    """One server without a socket, of the page of a monitor."""

    def __init__(self, module: ModuleType) -> None:
        self.loop = asyncio.new_event_loop()
        self.faults = _Faults()
        logging.getLogger(module.__name__).addHandler(self.faults)
        logging.getLogger("asyncio").addHandler(self.faults)
        logging.getLogger(module.__name__).propagate = logging.getLogger("asyncio").propagate = False
        self.loop.set_exception_handler(lambda _, context: self.faults.seen.append(str(context)))
        self.loop.create_server = self._keep  # type: ignore[method-assign,assignment]
        self._protocol: Callable[[], asyncio.Protocol] | None = None
        self.loop.run_until_complete(module.serve(_application(), "127.0.0.1:0"))

    async def _keep(self, factory: Callable[[], asyncio.Protocol], *_: object, **__: object) -> SimpleNamespace:
        self._protocol = factory
        return SimpleNamespace(sockets=[SimpleNamespace(getsockname=lambda: ("127.0.0.1", 1))])

    def ask(self, data: bytes) -> bytes:
        """What is answered to ``data``, which comes in two pieces."""
        return self.loop.run_until_complete(self._ask(data))

    async def _ask(self, data: bytes) -> bytes:
        assert self._protocol is not None
        transport, protocol = _Transport(), self._protocol()
        protocol.connection_made(transport)
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            if piece and not transport.closed:
                protocol.data_received(piece)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return bytes(transport.sent)


def _application() -> web.Application:
    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    add_routes(app, HostState("db-7"))
    app.add_routes([web.get("/healthz", healthz)])
    return app


@cache
def _server(module: ModuleType) -> _Server:
    return _Server(module)


def _request(rng: random.Random) -> bytes:
    lines = [f"GET {rng.choice(('/', '/healthz', '/api/status'))} HTTP/1.1", rng.choice(_LINES[:3])]
    lines += rng.sample(_LINES[3:], rng.randrange(4))
    return "\r\n".join([*lines, "", ""]).encode()


def _make(rng: random.Random) -> bytes:
    return b"".join(_request(rng) for _ in range(rng.choice((1, 1, 3))))


def _break(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A request with another line, method, path or body; sometimes bytes."""
    if rng.random() < 0.4:
        return mutate(rng, data, other)
    head, _, _ = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        match rng.randrange(4):
            case 0:
                lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(_ODD_LINES))
            case 1:
                lines[0] = b" ".join((rng.choice(_METHODS), rng.choice(_PATHS), rng.choice((b"HTTP/1.1", b"HTTP/1.0"))))
            case 2 if len(lines) > 1:
                del lines[rng.randrange(len(lines))]
            case _:
                at = rng.randrange(len(lines))
                lines[at] = mutate(rng, lines[at] or b"x", b"GET / HTTP/1.1")
    ends = rng.choice((b"\r\n", b"\r\n", b"\n", b"\r"))
    return ends.join([*lines, b"", b""]) + rng.choice(_BODIES) + rng.choice((b"", other))


class _RefusedError(Exception):
    pass


def _ask(module: ModuleType, data: bytes) -> object:
    server = _server(module)
    answer = server.ask(data)
    if server.faults.seen:
        seen, server.faults.seen = server.faults.seen, []
        raise AssertionError(f"{seen}")
    status = _STATUS.match(answer)
    if answer and (status is None or status[1] not in b"124"):
        raise AssertionError(f"answered {answer[:80]!r}")
    if status is None or status[1] == b"4":
        raise _RefusedError
    return None


TARGETS = [Target("http", "wormhole.host.http_server", _ask, _make, (_RefusedError,), mutate=_break)]
