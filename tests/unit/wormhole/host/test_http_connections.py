"""Half-sent requests take no place from anybody, and a connection that is being answered keeps its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from tests.support.eventually import patience
from wormhole.host import http_connections, http_server
from wormhole.host.http_server import serve, url


@asynccontextmanager
async def _server(*, go_on: asyncio.Event | None = None) -> AsyncIterator[str]:
    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def slow(request: web.Request) -> web.Response:
        assert go_on is not None
        await go_on.wait()
        return web.Response(text="slow")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/slow", slow)])
    server = await serve(app, "127.0.0.1:0")
    try:
        async with patience():
            yield server.address
    finally:
        await server.close()


async def _connect(address: str, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def _health(address: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url(address, None, "/healthz")) as answer:
        return await answer.text()


async def test_half_sent_requests_do_not_keep_a_health_check_out() -> None:
    async with _server() as address:
        held = [await _connect(address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ") for _ in range(105)]
        assert await _health(address) == "ok"
        for _, writer in held:
            writer.close()


async def test_a_connection_without_a_whole_request_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections.Connections.__init__, "__defaults__", (0.05, 20))
    async with _server() as address:
        for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "):
            reader, writer = await _connect(address, sent)
            with suppress(ConnectionError):
                assert await reader.read() == b""  # ends, whatever the client leaves unsaid
            writer.close()


async def test_who_is_answered_keeps_its_place_while_all_others_lose_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(http_connections.Connections.__init__, "__defaults__", (10.0, 0))
    go_on = asyncio.Event()
    request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with _server(go_on=go_on) as address:
        first, first_writer = await _connect(address, request)
        half, half_writer = await _connect(address, b"GET ")
        second, second_writer = await _connect(address, request)
        with suppress(ConnectionError):
            assert await half.read() == b""
        third, third_writer = await _connect(address, request)  # both places are taken by requests now
        with suppress(ConnectionError):
            assert await third.read() == b""
        go_on.set()
        assert await first.readuntil(b"slow")
        assert await second.readuntil(b"slow")
        for writer in (first_writer, half_writer, second_writer, third_writer):
            writer.close()
