"""The HTTP server of a process: answers, connections and their bounds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.support.certificates import Authority
from tests.support.eventually import patience
from wormhole.config import TlsFiles
from wormhole.host import http_connections, http_server
from wormhole.host.http_guard import host_allowed, protect
from wormhole.host.http_server import serve, url
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError

# --- Who may listen where, who is answered, and what a taken port says


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="here")


@asynccontextmanager
async def serving(
    listen: str, handler: Callable[[web.Request], Awaitable[web.Response]] = hello, **options: Any
) -> AsyncIterator[str]:
    """Its address."""
    app = web.Application()
    app.add_routes([web.get("/", handler)])
    server = await serve(app, listen, **options)
    try:
        yield server.address
    finally:
        await server.close()


async def test_it_has_its_port_and_answers_to_names_of_this_host_only() -> None:
    async with serving("127.0.0.1:0", names=["db1.internal"]) as address, aiohttp.ClientSession() as session:
        async with session.get(url(address, None, "/")) as answer:
            assert await answer.text() == "here"
        for place, headers, status in (
            (f"http://localhost:{address.rpartition(':')[2]}/", {}, 200),
            (url(address, None), {"Host": "rebound.example"}, 421),
            (url(address, None), {"Host": "db1.internal:7480"}, 200),
        ):
            async with session.get(place, headers=headers) as answer:
                assert answer.status == status


async def test_a_taken_port_is_reported_with_the_setting() -> None:
    async with serving("127.0.0.1:0") as address:
        with pytest.raises(ConfigError, match=r'publisher.http_listen = "127.0.0.1:\d+".*in use') as refused:
            await serve(web.Application(), address, setting="publisher.http_listen")
        assert (
            refused.value.hint == "another process listens there (`ss -ltnp` names it): end it, or choose another port"
        )


async def test_what_is_no_http_is_answered_and_not_logged_but_our_own_faults_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(request: web.Request) -> web.Response:
        raise RuntimeError("our own")

    async with serving("127.0.0.1:0", fails) as address, patience():
        host, _, port = address.rpartition(":")
        for sent, status in (
            (b"GET / HTTP/1.1\r\n\r\n", b" 400 "),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 500 "),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert status in await reader.readline()
            writer.close()
    [record] = caplog.records
    assert "our own" in str(record.exc_info)


def client(tls: TlsFiles) -> ssl.SSLContext:
    return Trust(tls).context(ssl.PROTOCOL_TLS_CLIENT)


async def test_beyond_loopback_it_wants_tls_or_a_word() -> None:
    with pytest.raises(ConfigError, match="http_listen"):
        await serve(web.Application(), "0.0.0.0:0", setting="publisher.http_listen")
    async with serving("0.0.0.0:0", insecure=True):
        pass


async def test_beyond_loopback_both_sides_show_a_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "other-ca")
    tls = authority.issue("publisher-1")
    trust = await asyncio.to_thread(Trust, tls)
    async with serving("0.0.0.0:0", trust=trust) as listening, aiohttp.ClientSession() as session:
        address = url(listening, tls, "/")
        assert address.startswith("https://0.0.0.0:")
        async with session.get(address, ssl=await asyncio.to_thread(client, authority.issue("prometheus"))) as answer:
            assert await answer.text() == "here"
        with pytest.raises(aiohttp.ClientError):
            await session.get(address, ssl=await asyncio.to_thread(client, stranger.issue("prometheus")))


async def test_on_loopback_it_speaks_plainly_also_where_tls_is_configured(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("publisher-1")
    async with serving("127.0.0.1:0", trust=await asyncio.to_thread(Trust, tls)) as address:
        async with aiohttp.ClientSession() as session, session.get(url(address, tls, "/")) as answer:
            assert await answer.text() == "here"


async def test_a_file_that_cannot_be_used_is_named_as_tls(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("publisher-1")
    tls.cert.write_text("nothing")
    with pytest.raises(ConfigError, match=r"tls\.cert"):
        await serve(web.Application(), "0.0.0.0:0", trust=await asyncio.to_thread(Trust, tls))


# --- Half-sent requests take no place from anybody, and a connection that is being answered keeps its own


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


# --- http guard


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "LOCALHOST:7480",
        "127.0.0.1:7480",
        "127.0.0.1",
        "[::1]:7480",
        "[::1]",
        "10.1.2.3:80",
        "db1.internal:7480",
        "db1.internal.",
    ],
)
def test_addresses_and_own_names_are_answered(header: str) -> None:
    assert host_allowed(header, {"db1.internal"})


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "evil.example:7480",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[evil]:1",
        "1.2.3",
        "db1",
    ],
)
def test_any_other_name_is_refused(header: str) -> None:
    assert not host_allowed(header, {"db1.internal"})


async def test_a_protected_server_refuses_strangers_names_and_adds_headers() -> None:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello", headers={"Cache-Control": "no-cache"})

    app = web.Application()
    protect(app, ["DB1.internal"])
    app.add_routes([web.get("/", hello)])
    async with TestClient(TestServer(app)) as client:
        good = await client.get("/")
        assert (good.status, good.headers["X-Content-Type-Options"]) == (200, "nosniff")
        assert good.headers["Cache-Control"] == "no-cache", "what the handler says counts"
        assert "default-src 'none'" in good.headers["Content-Security-Policy"]
        assert (await client.get("/", headers={"Host": "db1.internal:7480"})).status == 200
        rebound = await client.get("/", headers={"Host": "evil.example"})
        assert rebound.status == 421
        assert rebound.headers["Referrer-Policy"] == "no-referrer"
        assert "evil" not in await rebound.text()
        missing = await client.get("/nothing")
        assert (missing.status, missing.headers["X-Content-Type-Options"]) == (404, "nosniff")
        assert (await client.post("/")).status == 405
