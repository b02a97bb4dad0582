"""A malicious client of the HTTP endpoints: a health check is answered all the same, little memory is held, and nothing
leaks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from monitor.metrics import add_routes as add_metrics
from monitor.state import HostState
from monitor.web import add_routes as add_page
from tests.support.certificates import Authority
from tests.support.eventually import eventually, patience
from wormhole.host import http_connections, http_server
from wormhole.host.http_connections import Connections
from wormhole.host.http_server import MOST_CONNECTIONS, serve, url
from wormhole.host.trust import Trust

_LARGE = 4 << 20
_BUFFERED = 16 << 20


class _Scene:
    """A monitor's endpoints, and two of which the answers are slow and large. ``held``: the server's connections."""

    def __init__(self) -> None:
        self.address = ""
        self.handled = 0
        self.go_on = asyncio.Event()
        self.connections: list[Connections] = []
        self.opened: list[asyncio.StreamWriter] = []

    @property
    def held(self) -> Connections:
        return self.connections[0]

    def application(self) -> web.Application:
        async def slow(request: web.Request) -> web.Response:
            self.handled += 1
            await self.go_on.wait()
            return web.Response(text="slow")

        async def large(request: web.Request) -> web.Response:
            self.handled += 1
            return web.Response(body=bytes(_LARGE))

        app = web.Application()
        state = HostState("db-7")
        add_metrics(app, state)
        add_page(app, state)
        app.add_routes([web.get("/slow", slow), web.get("/large", large)])
        return app

    def asked(self, times: int) -> bool:
        return self.handled >= times

    async def connect(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.opened.append(writer)
        writer.write(sent)
        with suppress(ConnectionError):
            await writer.drain()
        return reader, writer

    async def answer(self, sent: bytes) -> bytes:
        """All that is answered, until the server closes the connection."""
        reader, _ = await self.connect(sent)
        found = b""
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                found += piece
        return found

    async def health(self) -> str:
        async with aiohttp.ClientSession() as session, session.get(url(self.address, None, "/healthz")) as answer:
            return await answer.text()


@asynccontextmanager
async def _scene(monkeypatch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[_Scene]:
    scene = _Scene()

    def kept(*arguments: int) -> Connections:
        scene.connections.append(Connections(*arguments))
        return scene.held

    monkeypatch.setattr(http_server, "Connections", kept)
    server = await serve(scene.application(), **{"listen": "127.0.0.1:0", **options})
    scene.address = server.address
    try:
        async with patience():
            yield scene
    finally:
        scene.go_on.set()
        for writer in scene.opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in scene.opened), return_exceptions=True)
        await server.close()


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Scene]:
    async with _scene(monkeypatch) as made:
        yield made


def _get(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


async def test_half_sent_requests_keep_no_health_check_out(scene: _Scene) -> None:
    for half in (b"", b"GET ", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "):
        for _ in range(105):
            await scene.connect(half)
        assert await scene.health() == "ok\n"
        assert len(scene.held) <= MOST_CONNECTIONS


async def test_requests_that_are_never_answered_keep_no_health_check_out(scene: _Scene) -> None:
    opened = [await scene.connect(_get("/slow")) for _ in range(MOST_CONNECTIONS + 50)]
    for _ in range(3):
        assert await scene.health() == "ok\n"
    assert 50 <= scene.handled < MOST_CONNECTIONS
    assert (await scene.answer(_get("/slow"))).startswith(b"HTTP/1.1 503 ")
    scene.go_on.set()
    assert await opened[0][0].readuntil(b"slow")
    assert (await scene.answer(_get("/slow", "Connection: close"))).startswith(b"HTTP/1.1 200 ")


async def test_new_connections_without_an_end_keep_no_health_check_out(scene: _Scene) -> None:

    async def flood() -> None:
        while True:
            await scene.connect(b"GET /")

    flooding = [asyncio.create_task(flood()) for _ in range(8)]
    try:
        for _ in range(10):
            assert await scene.health() == "ok\n"
        await eventually(lambda: len(scene.opened) > 2 * MOST_CONNECTIONS, "the flood is one")
        assert await scene.health() == "ok\n"
    finally:
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)


async def test_unread_answers_are_bounded(scene: _Scene) -> None:
    sockets = []
    most = 0
    for number in range(60):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", int(scene.address.rpartition(":")[2])))
        one.sendall(_get("/large"))
        sockets.append(one)
        await eventually(partial(scene.asked, number + 1), "it was asked")
        held = scene.held
        waiting = [*held._idle, *held._answered]
        most = max(most, sum(one.get_write_buffer_size() for one in waiting))  # type: ignore[attr-defined]
    assert await scene.health() == "ok\n"
    for one in sockets:
        one.close()
    assert _LARGE < most <= _BUFFERED + 2 * _LARGE


@pytest.mark.parametrize("path", ["/slow", "/api/events"])
async def test_requests_behind_one_that_is_answered_are_bounded(scene: _Scene, path: str) -> None:
    reader, writer = await scene.connect(_get(path) + _get("/slow", *(f"X{n}: {'y' * 8000}" for n in range(7))) * 2)
    sent = 0
    with suppress(ConnectionError):
        while sent < 64 << 20:
            writer.write(_get("/slow") * 100)
            sent += len(_get("/slow")) * 100
            await writer.drain()
    assert sent < 64 << 20, "all of it was taken"
    assert scene.handled <= 1
    assert await scene.health() == "ok\n"
    assert not scene.held._answered
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize(
    "sent",
    [
        _get("/healthz", *(f"X{n}: {'y' * 8000}" for n in range(100))),
        _get("/healthz", "X: " + "y" * 1_000_000),
        _get("/healthz", *(f"X{n}: y" for n in range(10_000))),
        b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"X" * 1_000_000,
    ],
    ids=["many long headers", "a long header", "many headers", "a long path", "no HTTP"],
)
async def test_a_huge_request_is_refused(scene: _Scene, sent: bytes) -> None:
    answer = await scene.answer(sent)
    assert answer.startswith(b"HTTP/1.1 400 ") or not answer
    assert not len(scene.held)


async def test_a_body_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections.Connections.__init__, "__defaults__", (0.2, 20))
    async with _scene(monkeypatch) as scene:
        head = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx"
        answer = await scene.answer(head)  # the client never sends the rest
        assert answer.startswith(b"HTTP/1.1 405 ")


async def test_half_handshakes_keep_no_health_check_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    tls, client = [await asyncio.to_thread(authority.issue, name) for name in ("monitor", "prometheus")]
    async with _scene(monkeypatch, listen="0.0.0.0:0", trust=await asyncio.to_thread(Trust, tls)) as scene:
        halves = (b"", b"\x16\x03\x01\x02\x00\x01")
        opened = [await scene.connect(half) for half in halves for _ in range(MOST_CONNECTIONS)]
        assert (await scene.answer(_get("/healthz")))[:1] in {b"", b"\x15"}  # it speaks no TLS: nothing or an alert
        context = await asyncio.to_thread(lambda: Trust(client).context(ssl.PROTOCOL_TLS_CLIENT))
        async with aiohttp.ClientSession() as session:
            async with session.get(url(scene.address, tls, "/healthz"), ssl=context) as answer:
                assert await answer.text() == "ok\n"
        ended = [writer.transport.is_closing() or reader.at_eof() for reader, writer in opened]
        assert sum(ended) >= MOST_CONNECTIONS
        for writer in scene.opened:
            writer.close()
        await eventually(lambda: len(scene.held) <= 1, "their places are free")


async def test_a_client_without_a_certificate_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = await asyncio.to_thread(Authority, tmp_path / "ours")
    theirs = await asyncio.to_thread(Authority, tmp_path / "theirs", "other-ca")
    tls, client = await asyncio.to_thread(ours.issue, "monitor"), await asyncio.to_thread(theirs.issue, "prometheus")
    async with _scene(monkeypatch, listen="0.0.0.0:0", trust=await asyncio.to_thread(Trust, tls)) as scene:
        foreign = await asyncio.to_thread(lambda: Trust(client).context(ssl.PROTOCOL_TLS_CLIENT))
        await asyncio.to_thread(foreign.load_verify_locations, tls.ca)
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(url(scene.address, tls, "/healthz"), ssl=foreign)
        await eventually(lambda: not len(scene.held), "it has no place")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "a:b:c"])
async def test_a_name_that_was_bound_to_this_host_is_not_ours(scene: _Scene, host: str) -> None:
    for path in ("/", "/api/status", "/api/events", "/metrics", "/healthz", "/assets/page.js"):
        answer = await scene.answer(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 ")), path
        assert b"db-7" not in answer
        assert b"wormhole_" not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../../../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets//etc/passwd",
        "/assets/..\\..\\page.py",
        "/assets/page.py%00.js",
        "/assets/index.html",
        "//etc/passwd",
        "/../etc/passwd",
        "file:///etc/passwd",
    ],
)
async def test_no_path_leads_to_another_file(scene: _Scene, path: str) -> None:
    answer = await scene.answer(_get(path, "Connection: close"))
    assert answer[8:13] in {b" 404 ", b" 400 "}
    assert b"root:" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
async def test_nothing_is_changed_over_http_and_no_other_origin_is_let_in(scene: _Scene, method: str) -> None:
    for path in ("/", "/api/status", "/metrics"):
        lines = "Host: localhost\r\nOrigin: http://evil.example\r\nConnection: close"
        answer = await scene.answer(f"{method} {path} HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 405 ", b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
        assert b"access-control-allow" not in answer.lower()
        assert b"evil" not in answer
