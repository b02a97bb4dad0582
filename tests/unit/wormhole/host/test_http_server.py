"""Who may listen where, who is answered, and what a taken port says."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.support.certificates import Authority
from tests.support.eventually import patience
from wormhole.config import TlsFiles
from wormhole.host.http_server import serve, url
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError


def _app() -> web.Application:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    app.add_routes([web.get("/", hello)])
    return app


async def test_it_tells_its_port_and_answers_to_names_of_this_host_only() -> None:
    server = await serve(_app(), "127.0.0.1:0", names=["db1.internal"])
    port = server.address.rpartition(":")[2]
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(url(server.address, None, "/")) as answer:
                assert await answer.text() == "here"
            async with session.get(f"http://localhost:{port}/") as answer:
                assert answer.status == 200
            async with session.get(url(server.address, None), headers={"Host": "rebound.example"}) as answer:
                assert answer.status == 421
            async with session.get(url(server.address, None), headers={"Host": "db1.internal:7480"}) as answer:
                assert answer.status == 200
    finally:
        await server.close()


async def test_a_taken_port_is_told_with_the_setting() -> None:
    server = await serve(_app(), "127.0.0.1:0")
    try:
        with pytest.raises(ConfigError, match=r'publisher.http_listen = "127.0.0.1:\d+".*in use') as told:
            await serve(_app(), server.address, setting="publisher.http_listen")
        assert told.value.hint == "use a free port, or port 0"
    finally:
        await server.close()


async def test_what_is_no_http_is_answered_and_not_logged_but_our_own_faults_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(request: web.Request) -> web.Response:
        raise RuntimeError("our own")

    app = web.Application()
    app.add_routes([web.get("/", fails)])
    server = await serve(app, "127.0.0.1:0")
    host, _, port = server.address.rpartition(":")
    try:
        async with patience():
            for sent, told in (
                (b"GET / HTTP/1.1\r\n\r\n", b" 400 "),
                (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 500 "),
            ):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(sent)
                assert told in await reader.readline()
                writer.close()
    finally:
        await server.close()
    [record] = caplog.records
    assert "our own" in str(record.exc_info)


def client(tls: TlsFiles) -> ssl.SSLContext:
    return Trust(tls).context(ssl.PROTOCOL_TLS_CLIENT)


async def test_beyond_loopback_it_wants_tls_or_a_word() -> None:
    with pytest.raises(ConfigError, match="http_listen"):
        await serve(_app(), "0.0.0.0:0", setting="publisher.http_listen")
    server = await serve(_app(), "0.0.0.0:0", insecure=True)
    await server.close()


async def test_beyond_loopback_both_sides_show_a_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "other-ca")
    tls = authority.issue("publisher-1")
    server = await serve(_app(), "0.0.0.0:0", trust=await asyncio.to_thread(Trust, tls))
    address = url(server.address, tls, "/")
    assert address.startswith("https://0.0.0.0:")
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(
                address, ssl=await asyncio.to_thread(client, authority.issue("prometheus"))
            ) as answer:
                assert await answer.text() == "here"
            for files in (stranger.issue("prometheus"),):
                with pytest.raises(aiohttp.ClientError):
                    await session.get(address, ssl=await asyncio.to_thread(client, files))
    finally:
        await server.close()


async def test_on_loopback_it_speaks_plainly_also_where_tls_is_configured(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("publisher-1")
    server = await serve(_app(), "127.0.0.1:0", trust=await asyncio.to_thread(Trust, tls))
    try:
        async with aiohttp.ClientSession() as session, session.get(url(server.address, tls, "/")) as answer:
            assert await answer.text() == "here"
    finally:
        await server.close()


async def test_a_file_that_cannot_be_used_is_named_as_tls(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("publisher-1")
    tls.cert.write_text("nothing")
    with pytest.raises(ConfigError, match=r"tls\.cert"):
        await serve(_app(), "0.0.0.0:0", trust=await asyncio.to_thread(Trust, tls))
