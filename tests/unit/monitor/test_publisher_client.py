"""What a publisher answers over HTTP, and one sentence of why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from monitor import publisher_client as module
from monitor.publisher_client import NoAnswerError, PublisherClient
from tests.support.certificates import Authority
from tests.support.ports import free_port
from wormhole.config import TlsFiles
from wormhole.host.http_server import serve
from wormhole.host.tls import open_trust


@asynccontextmanager
async def serving(listen: str = "127.0.0.1:0", tls: TlsFiles | None = None) -> AsyncIterator[str]:
    async def large(request: web.Request) -> web.Response:
        return web.Response(body=b"12345")

    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.add_routes([web.get("/large", large), web.get("/never", never)])
    server = await serve(app, listen, trust=await asyncio.to_thread(open_trust, tls))
    try:
        yield server.address
    finally:
        await server.close()


@asynccontextmanager
async def asking(tls: TlsFiles | None = None) -> AsyncIterator[PublisherClient]:
    asker = PublisherClient(await asyncio.to_thread(open_trust, tls))
    await asker.start()
    try:
        yield asker
    finally:
        await asker.close()


async def test_an_answer_and_every_reason_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as address, asking() as asker:
        assert await asker.get(address, "/large", 5.0) == b"12345"
        with pytest.raises(NoAnswerError, match=r"^it does not answer within 0\.05 s$"):
            await asker.get(address, "/never", 0.05)
        with pytest.raises(NoAnswerError, match=r"404"):
            await asker.get(address, "/else", 5.0)
        with pytest.raises(NoAnswerError, match=r"^it does not answer: Connection refused$"):
            await asker.get(f"127.0.0.1:{free_port()}", "/large", 5.0)
        monkeypatch.setattr(module, "_MOST_BYTES", 4)
        with pytest.raises(NoAnswerError, match=r"^its answer is larger than"):
            await asker.get(address, "/large", 5.0)


async def test_beyond_loopback_it_shows_its_certificate(tmp_path: Path) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    tls = await asyncio.to_thread(authority.issue, "h1")
    async with serving("0.0.0.0:0", tls) as address:
        async with asking(tls) as asker:
            assert await asker.get(address, "/large", 5.0) == b"12345"
        async with asking() as stranger:
            with pytest.raises(NoAnswerError):
                await stranger.get(address, "/large", 5.0)
