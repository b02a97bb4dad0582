"""The monitor as a whole, in this process: what stops it from starting, what it leaves, and what it reads again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from monitor import supervisor
from monitor.daemon import Monitor
from monitor.processes import find
from monitor.state import LogKey, Phase
from tests.support import stub_publisher
from tests.support.eventually import PATIENCE_S, patience
from tests.support.host_state import until
from wormhole.config import load
from wormhole.model.errors import ConfigError, WormholeError

A, B = LogKey("shop", "main", "a"), LogKey("shop", "main", "b")

pytestmark = pytest.mark.allow_blocking("looks at files and at /proc")


class Host:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "host.toml"
        self.write("a")

    def write(self, *logs: str, monitor: str = "", publisher: str = "") -> None:
        text = "version = 1\n[coordinator]\nstatic = true\n"
        text += f'[publisher]\nstate_dir = "state"\n{publisher}\n[monitor]\nlisten = "127.0.0.1:0"\n{monitor}\n'
        for log in logs:
            text += f'[datasets.shop.copies.main.logs.{log}]\nsource = "rocksdb:///{log}"\n'
        self.file.write_text(text)

    def monitor(self, *, leave: bool = False) -> Monitor:
        return Monitor(load(self.file), lambda: load(self.file), leave=leave)

    def alive(self) -> list[int]:
        return [one.pid for one in find(self.folder / "state" / "monitor" / "running")]


def phases(monitor: Monitor) -> dict[LogKey, Phase]:
    return {key: one.phase for key, one in monitor.state.publishers.items()}


async def runs(monitor: Monitor, *keys: LogKey) -> None:
    await until(monitor.state, lambda: phases(monitor) == dict.fromkeys(keys, Phase.RUNNING))


@asynccontextmanager
async def living(monitor: Monitor) -> AsyncIterator[asyncio.Task[None]]:
    ready = asyncio.Event()
    task = asyncio.create_task(monitor.run(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    try:
        yield task
    finally:
        monitor.end()
        async with patience():
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(supervisor, "command", stub_publisher.command)
    host = Host(tmp_path)
    yield host
    for pid in host.alive():
        os.kill(pid, signal.SIGKILL)


async def refused(monitor: Monitor) -> WormholeError:
    with pytest.raises(WormholeError) as caught:
        async with patience():
            await monitor.run()
    return caught.value


async def test_it_runs_what_its_file_says_and_takes_all_of_it_along(host: Host) -> None:
    monitor = host.monitor()
    async with living(monitor) as task:
        await runs(monitor, A)
        page = await asyncio.to_thread(_read, monitor.page)
        assert page.startswith(b"<!doctype html>") or b"<html" in page.lower()
    assert task.result() is None
    assert host.alive() == []


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        data: bytes = answer.read()
        return data


async def test_on_request_it_leaves_publishers_for_the_next(host: Host) -> None:
    first = host.monitor(leave=True)
    async with living(first):
        await runs(first, A)
    [left] = host.alive()
    second = host.monitor()
    async with living(second):
        await runs(second, A)
        assert second.state.publishers[A].pid == left
    assert host.alive() == []


async def test_a_second_monitor_in_the_folder_is_refused_and_the_first_goes_on(host: Host) -> None:
    first = host.monitor()
    async with living(first):
        await runs(first, A)
        error = await refused(host.monitor())
        assert isinstance(error, ConfigError)
        assert f"a monitor runs already in {host.folder}/state/monitor: process {os.getpid()}" in error.message
        assert phases(first) == {A: Phase.RUNNING}


async def test_a_port_that_is_taken_is_reported_before_anything_starts(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        host.write("a")
        text = host.file.read_text().replace('"127.0.0.1:0"', f'"127.0.0.1:{other.getsockname()[1]}"')
        host.file.write_text(text)
        error = await refused(host.monitor())
    assert "monitor.listen" in error.message
    assert host.alive() == []
    monitor = Monitor(load(host.file), lambda: load(host.file))  # everything was given back
    async with living(monitor):
        await runs(monitor, A)


async def test_a_file_that_names_no_coordinator_is_refused(host: Host) -> None:
    host.file.write_text(host.file.read_text().replace("static = true", ""))
    error = await refused(host.monitor())
    assert isinstance(error, ConfigError)
    assert "[coordinator]" in error.message


async def test_asked_to_it_reads_its_file_again(host: Host) -> None:
    monitor = host.monitor()
    async with living(monitor):
        await runs(monitor, A)
        pid = monitor.state.publishers[A].pid
        host.write("a", "b")
        monitor.reload()
        await runs(monitor, A, B)
        assert monitor.state.publishers[A].pid == pid, "nothing changed for this one"
        host.file.write_text("version = 2")
        monitor.reload()
        await until(monitor.state, _told(monitor, "stays as it was"))
        assert phases(monitor) == {A: Phase.RUNNING, B: Phase.RUNNING}
        host.write("b", publisher='heartbeat = "5s"')
        monitor.reload()
        before = monitor.state.publishers[B].pid
        await until(
            monitor.state,
            lambda: phases(monitor) == {B: Phase.RUNNING} and monitor.state.publishers[B].pid != before,
        )
    assert host.alive() == []


def _told(monitor: Monitor, text: str) -> Callable[[], bool]:
    return lambda: any(text in event.text for event in monitor.state.events)


async def test_what_was_given_up_is_tried_again_when_asked(host: Host) -> None:
    (host.folder / "state").mkdir()
    (host.folder / "state" / "behaviour").write_text("exit 2")
    monitor = host.monitor()
    async with living(monitor):
        await until(monitor.state, lambda: phases(monitor) == {A: Phase.GIVEN_UP})
        (host.folder / "state" / "behaviour").write_text("serve")
        monitor.reload()
        await runs(monitor, A)


async def test_in_a_hurry_it_kills(host: Host) -> None:
    (host.folder / "state").mkdir()
    (host.folder / "state" / "behaviour").write_text("deaf")
    monitor = host.monitor()
    async with living(monitor) as task:
        await runs(monitor, A)
        monitor.end()
        await until(monitor.state, lambda: phases(monitor) == {A: Phase.STOPPING})
        task.cancel()
        async with patience():
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
    assert host.alive() == []


def test_it_starts_without_what_only_publishers_need() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, monitor.daemon, wormhole.host.logs; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert {"grpc", "uvloop", "rich", "publisher", "caravan"}.isdisjoint(told)
