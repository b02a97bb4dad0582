from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from wormhole.host.http_guard import host_allowed, protect


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
