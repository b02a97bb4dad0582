"""The watcher against real admin services: it takes answers, tells what is new, and waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from monitor import watcher as module
from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.watcher import Watcher, pause
from tests.support.certificates import Authority
from tests.support.host_state import until
from wormhole.tls import TlsFiles, server_credentials
from wormhole.wire.v1 import admin_pb2

A, B = LogKey("shop", "main", "a"), LogKey("shop", "main", "b")


class Publisher:
    """Its admin service: answers with what a test sets, or not at all."""

    def __init__(self) -> None:
        self.answer = admin_pb2.PublisherStatus(dataset="shop")
        self.silent = False

    @asynccontextmanager
    async def serving(self, tls: TlsFiles | None = None) -> AsyncIterator[str]:
        async def describe(request: bytes, context: object) -> bytes:
            while self.silent:  # noqa: ASYNC110 - set from outside
                await asyncio.sleep(0.01)
            return self.answer.SerializeToString()

        server = grpc.aio.server()
        handler: Any = grpc.unary_unary_rpc_method_handler(describe)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", {"Describe": handler}),)
        )
        if tls is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", await asyncio.to_thread(server_credentials, tls))
        await server.start()
        try:
            yield f"0.0.0.0:{port}"
        finally:
            await server.stop(0)


@asynccontextmanager
async def watching(state: HostState, tls: TlsFiles | None = None, name: str = "") -> AsyncIterator[None]:
    task = asyncio.create_task(Watcher(state, tls, name).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def running(state: HostState, key: LogKey, address: str, pid: int = 1) -> PublisherState:
    entry = state.publishers[key] = PublisherState(key, Phase.RUNNING, pid, admin=address)
    return entry


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pause", lambda publishers: 0.02)


@pytest.mark.parametrize(("publishers", "seconds"), [(0, 1.0), (1, 1.0), (10, 2.0), (1000, 3.0)])
def test_many_are_asked_less_often_each(publishers: int, seconds: float) -> None:
    assert pause(publishers) == seconds


async def test_answers_and_their_news_reach_the_state() -> None:
    state, publisher = HostState("h1"), Publisher()
    async with publisher.serving() as address, watching(state):
        entry = running(state, A, address)
        await until(state, lambda: entry.status is not None)
        assert entry.answered > 0
        assert entry.problem == ""
        publisher.answer = admin_pb2.PublisherStatus(
            flows=[admin_pb2.FlowStatus(flow="cache/db1", loss_pending=True, cause="purged")]
        )
        await until(state, lambda: state.events)
        assert [(event.kind, event.subject, event.text) for event in state.events] == [
            ("data_loss", "cache/db1", "purged")
        ]
        answered = entry.answered
        await until(state, lambda: entry.answered > answered)
        assert len(state.events) == 1, "told once"


async def test_one_that_hangs_keeps_nobody_waiting_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    state, publisher, other = HostState("h1"), Publisher(), Publisher()
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


async def test_one_that_is_gone_is_told_and_its_successor_asked() -> None:
    state, publisher = HostState("h1"), Publisher()
    async with watching(state):
        async with publisher.serving() as address:
            entry = running(state, A, address)
            await until(state, lambda: entry.status is not None)
        await until(state, lambda: entry.problem)
        assert "it does not answer: " in entry.problem
        async with publisher.serving() as address:
            entry.admin, entry.status = address, None
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
        publisher.answer = admin_pb2.PublisherStatus(dataset="of the second")
        await until(state, lambda: entry.status is not None)
        assert entry.status is not None
        assert entry.status.dataset == "of the second"


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


@pytest.mark.parametrize("name", ["", "h1"])
async def test_it_shows_its_certificate_and_expects_the_hosts(tmp_path: Path, name: str) -> None:
    tls = await asyncio.to_thread(lambda: Authority(tmp_path).issue("h1"))
    state, publisher = HostState("h1"), Publisher()
    async with publisher.serving(tls) as address, watching(state, tls, name):
        entry = running(state, A, address)
        await until(state, lambda: entry.status is not None)
