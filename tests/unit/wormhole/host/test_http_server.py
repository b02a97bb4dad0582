"""Who may listen where, who is answered, and what a taken port says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.certificates import Authority
from tests.support.eventually import patience
from wormhole.config import TlsFiles
from wormhole.host.http_server import serve, url
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError


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
