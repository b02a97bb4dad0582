"""The watcher against real publishers' addresses: it takes answers, tells what is new, and waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest
from aiohttp import web

from monitor import status_diff as happened
from monitor import status_poller as module
from monitor.state import HostState, LogKey, Phase, PublisherState, SinkKey, SinkState
from monitor.status_poller import StatusPoller, poll_interval
from monitor.web.concerns import of_sink
from tests.support.eventually import eventually
from tests.support.host_state import until
from wormhole.host.http_server import serve
from wormhole.metrics import catalogue as c
from wormhole.wire.v1 import admin_pb2

A, B = LogKey("shop", "main", "a"), LogKey("shop", "main", "b")


class Publisher:
    """Answers with what a test sets, or not at all."""

    def __init__(self, key: LogKey = A) -> None:
        self.answer = admin_pb2.PublisherStatus(dataset=key.dataset, copy=key.copy, log=key.log)
        self.nonsense = b""
        self.silent = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async def status(request: web.Request) -> web.Response:
            while self.silent:  # noqa: ASYNC110 - set from outside
                await asyncio.sleep(0.01)
            return web.Response(body=self.nonsense or self.answer.SerializeToString())

        app = web.Application()
        app.add_routes([web.get("/status", status)])
        server = await serve(app, "127.0.0.1:0")
        try:
            yield server.address
        finally:
            await server.close()


@asynccontextmanager
async def watching(state: HostState) -> AsyncIterator[None]:
    task = asyncio.create_task(StatusPoller(state).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def running(state: HostState, key: LogKey, address: str, pid: int = 1) -> PublisherState:
    entry = state.publishers[key] = PublisherState(key, Phase.RUNNING, pid, http=address)
    return entry


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "poll_interval", lambda publishers: 0.02)


@pytest.mark.parametrize(("publishers", "seconds"), [(0, 1.0), (1, 1.0), (10, 2.0), (1000, 3.0)])
def test_many_are_asked_less_often_each(publishers: int, seconds: float) -> None:
    assert poll_interval(publishers) == seconds


async def test_answers_and_their_news_reach_the_state() -> None:
    state, publisher = HostState("h1"), Publisher()
    async with publisher.serving() as address, watching(state):
        entry = running(state, A, address)
        await until(state, lambda: entry.status is not None)
        assert entry.answered > 0
        assert entry.problem == ""
        publisher.answer.flows.add(flow="cache/db1", loss_pending=True, cause="purged")
        await until(state, lambda: state.events)
        assert [(event.kind, event.subject, event.text) for event in state.events] == [
            ("data_loss", "cache/db1", "purged")
        ]
        answered = entry.answered
        await until(state, lambda: entry.answered > answered)
        assert len(state.events) == 1, "told once"


async def test_one_that_hangs_keeps_nobody_waiting_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    state, publisher, other = HostState("h1"), Publisher(), Publisher(B)
    publisher.silent = True
    async with publisher.serving() as address, other.serving() as other_address, watching(state):
        silent, well = running(state, A, address), running(state, B, other_address)
        await until(state, lambda: well.status is not None)
        await until(state, lambda: silent.problem)
        assert silent.problem == "it does not answer within 0.2 s"
        assert silent.status is None
        publisher.silent = False
        await until(state, lambda: silent.status is not None)
        assert silent.problem == ""


async def test_one_that_is_gone_is_reported_and_its_successor_asked() -> None:
    state, publisher = HostState("h1"), Publisher()
    async with watching(state):
        async with publisher.serving() as address:
            entry = running(state, A, address)
            await until(state, lambda: entry.status is not None)
        await until(state, lambda: entry.problem)
        assert "it does not answer: " in entry.problem
        async with publisher.serving() as address:
            entry.http, entry.status = address, None
            await until(state, lambda: entry.status is not None)
            assert entry.problem == ""


async def test_the_answer_of_a_former_process_does_not_count() -> None:
    state, publisher = HostState("h1"), Publisher()
    publisher.silent = True
    async with publisher.serving() as address, watching(state):
        entry = running(state, A, address)
        await asyncio.sleep(0.1)  # it is being asked
        entry.pid = 2
        publisher.silent = False
        publisher.answer.version = "of the second"
        await until(state, lambda: entry.status is not None)
        assert entry.status is not None
        assert entry.status.version == "of the second"


async def test_only_who_runs_is_asked_and_who_went_is_forgotten() -> None:
    state, publisher = HostState("h1"), Publisher()
    async with publisher.serving() as address, watching(state):
        stopping, entry = running(state, B, address), running(state, A, address)
        stopping.phase = Phase.STOPPING
        await until(state, lambda: entry.status is not None)
        assert stopping.status is None
        del state.publishers[A]
        seen = state.version
        await asyncio.sleep(0.1)
        assert state.version == seen


async def test_what_is_not_its_answer_is_reported_and_does_not_count() -> None:
    state, publisher = HostState("h1"), Publisher(B)
    async with publisher.serving() as address, watching(state):
        entry = running(state, A, address)
        await until(state, lambda: entry.problem)
        assert entry.problem == "shop/main/b answers at its address"
        publisher.nonsense = b"<html>"
        await until(state, lambda: "not a publisher's status" in entry.problem)
        assert entry.status is None


@pytest.mark.allow_error_log("a fault of ours is logged with its traceback")
async def test_an_answer_that_breaks_the_watcher_is_reported_at_once_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> NoReturn:
        raise ZeroDivisionError("a bug")

    found = happened.status_events
    monkeypatch.setattr(module, "status_events", broken)
    state, publisher = HostState("h1"), Publisher()
    async with publisher.serving() as address, watching(state):
        entry = running(state, A, address)
        await eventually(lambda: "its answer cannot be used" in caplog.text, "the fault is logged")
        monkeypatch.setattr(module, "status_events", found)
        await until(state, lambda: entry.status is not None)


async def test_one_that_does_not_answer_is_asked_where_it_listens_by_now() -> None:
    """A publisher that gave its log up listens anew, in the same process."""
    state, before, after = HostState("h1"), Publisher(), Publisher()
    now_at = ""

    async def read_addresses(key: LogKey) -> None:
        state.publishers[key].http = now_at

    task = asyncio.create_task(StatusPoller(state, None, read_addresses).run())
    try:
        async with before.serving() as address:
            now_at = address
            entry = running(state, A, address)
            await until(state, lambda: entry.status is not None)
        await until(state, lambda: entry.problem)
        async with after.serving() as address:
            now_at, entry.status = address, None
            await until(state, lambda: entry.status is not None)
            assert entry.problem == ""
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_a_sink_found_wrong_with_its_store_reaches_the_page() -> None:
    lines = [f'{c.SINK_PROBLEM.name}{{sink="{name}",subscriber="one",code="target-refused"}} 1.0' for name in "ab"]
    state = HostState("h1")

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="\n".join(lines))

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    server = await serve(app, "127.0.0.1:0")
    try:
        async with watching(state):
            sink = state.sinks[SinkKey("a")] = SinkState(SinkKey("a"), Phase.RUNNING, 1, http=server.address)
            other = state.sinks[SinkKey("c")] = SinkState(SinkKey("c"), Phase.RUNNING, 2, http=server.address)
            await until(state, lambda: sink.store)
            (concern,) = of_sink(sink)
            assert (concern.code, other.store) == ("target-refused", "")
            lines[:] = [f'{c.SINK_UNVERIFIED.name}{{sink="a",subscriber="one"}} 2.0']
            await until(state, lambda: not sink.store)
            (concern,) = of_sink(sink)
            assert (concern.code, sink.unverified, other.unverified) == ("rows-not-logged", 2, 0)
            lines.clear()
            await until(state, lambda: not sink.unverified)
            assert not list(of_sink(sink))
    finally:
        await server.close()
