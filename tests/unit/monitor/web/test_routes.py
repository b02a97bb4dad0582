from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from monitor.state import HostEvent, HostState
from monitor.web import add_routes
from monitor.web.routes import StatusPage
from tests.support.eventually import eventually, patience
from tests.support.monitor_states import quiet

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(state: HostState) -> AsyncIterator[Client]:
    app = web.Application()
    add_routes(app, state)
    async with TestClient(TestServer(app)) as client:
        yield client


@asynccontextmanager
async def watching(page: StatusPage) -> AsyncIterator[Client]:
    app = web.Application()
    app.on_startup.append(page.start)
    app.on_shutdown.append(page.stop)
    app.add_routes([web.get("/api/events", page.events)])
    async with TestClient(TestServer(app)) as client:
        yield client


async def next_event(stream: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
    async with patience():
        event = (await stream.content.readuntil(b"\n\n")).decode()
    name, data = event.splitlines()[:2]
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_the_page_and_its_files_come_with_a_policy_that_allows_nothing_else() -> None:
    async with serving(quiet(time.time())) as client:
        for path, kind in {
            "/": "text/html",
            "/assets/page.css": "text/css",
            "/assets/page.js": "text/javascript",
            "/assets/icon.svg": "image/svg+xml",
        }.items():
            answer = await client.get(path)
            assert (answer.status, answer.content_type) == (200, kind), path
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert "http" not in (await answer.text()).replace("http://www.w3.org/2000/svg", ""), (
                "nothing from elsewhere"
            )


@pytest.mark.parametrize(
    "path", ["/assets/nothing.js", "/assets/index.html", "/assets/..%2fpage.py", "/assets/../page.py"]
)
async def test_there_are_no_other_files(path: str) -> None:
    async with serving(quiet(time.time())) as client:
        assert (await client.get(path)).status == 404


@pytest.mark.parametrize("path", ["/", "/api/status", "/api/events", "/assets/page.js"])
async def test_nothing_can_be_sent_to_it(path: str) -> None:
    async with serving(quiet(time.time())) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await client.request(method, path)).status == 405


async def test_the_status_is_json() -> None:
    async with serving(quiet(time.time(), host="db7")) as client:
        answer = await client.get("/api/status")
        assert answer.content_type == "application/json"
        assert (await answer.json())["host"] == "db7"


@pytest.fixture
def state() -> HostState:
    return quiet(time.time())


async def test_words_that_are_no_text_do_not_break_it(state: HostState) -> None:
    state.add(HostEvent(1.0, "restart", "shop/main/db1", b"\xff\n\xe2\x80\xa8".decode(errors="surrogateescape")))
    async with serving(state) as client:
        assert (await client.get("/api/status")).status == 200
        async with client.get("/api/events") as stream:
            assert (await next_event(stream))[1]["events"][0]["text"] == "\udcff\n\u2028"


async def test_a_change_is_pushed_and_quiet_is_distinguished_from_lost(state: HostState) -> None:
    async with watching(StatusPage(state, pace_s=0.01, beat_s=0.02)) as client, client.get("/api/events") as stream:
        assert stream.content_type == "text/event-stream"
        name, told = await next_event(stream)
        assert (name, told["drained"]) == ("status", False)
        assert (await next_event(stream))[0] == "beat"
        state.drained = True
        state.changed()
        while name != "status" or not told["drained"]:
            name, told = await next_event(stream)


async def test_many_changes_within_the_pace_are_one_snapshot(state: HostState) -> None:
    async with watching(StatusPage(state, pace_s=0.2, beat_s=60)) as client, client.get("/api/events") as stream:
        await next_event(stream)
        for number in range(500):
            state.configuration = f"version {number}"
            state.changed()
            await asyncio.sleep(0)
        assert (await next_event(stream))[1]["configuration"] == "version 499"


async def test_watchers_are_bounded_and_one_that_leaves_makes_room(state: HostState) -> None:
    page = StatusPage(state, watchers=2, pace_s=0.01, beat_s=0.02)
    async with watching(page) as client:
        one = await client.get("/api/events")
        two = await client.get("/api/events")
        refused = await client.get("/api/events")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "10")
        assert "2 pages watch" in await refused.text()
        one.close()
        await eventually(lambda: len(page._watchers) < 2, "its place is free")
        async with client.get("/api/events") as again:
            assert again.status == 200
        two.close()


async def test_streams_end_when_the_server_does() -> None:
    app = web.Application()
    add_routes(app, quiet(time.time()))
    client: Client = TestClient(TestServer(app))
    await client.start_server()
    stream = await client.get("/api/events")
    await next_event(stream)
    async with patience():
        await client.server.close()
    with pytest.raises((aiohttp.ClientError, asyncio.IncompleteReadError)):
        await next_event(stream)
    await client.close()


async def test_all_watchers_of_one_second_get_the_same_bytes(monkeypatch: pytest.MonkeyPatch, state: HostState) -> None:
    made: list[float] = []
    page = StatusPage(state, pace_s=60)

    def count(_state: HostState, now: float) -> dict[str, float]:
        made.append(now)
        return {"at": now}

    monkeypatch.setattr("monitor.web.routes.snapshot", count)
    assert page._snapshot() is page._snapshot()
    assert len(made) == 1
    state.changed()
    page._snapshot()
    assert len(made) == 2
