"""A monitor runs real sinks: it restarts one that dies, finds it again, and has its metrics among its own."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from monitor.daemon import Monitor
from monitor.desired_sinks import desired_sinks
from monitor.state import Phase, SinkKey
from tests.support.eventually import patience
from tests.support.host_state import until
from tests.support.ports import free_port
from tests.support.present import present
from wormhole.config import load

pytestmark = pytest.mark.allow_blocking("reads the page of its own monitor, in a thread")
KEY = SinkKey("lines")


def written(file: Path, listen: str, sinks: str) -> None:
    file.write_text(f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "state"
[monitor]
host = "h1"
listen = "127.0.0.1:0"
sinks = [{sinks}]
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///nowhere"
host = "h2"
[applications.lines]
dataset = "shop"
start = "latest"
subscribers = {{ one = "{listen}" }}
[sinks.lines]
url = "jsonlines://{file.parent}"
""")


@asynccontextmanager
async def living(file: Path, *, leave: bool = False) -> AsyncIterator[Monitor]:

    monitor = Monitor(load(file), lambda: load(file), leave=leave, sinks=lambda found: desired_sinks(found, file))
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        monitor.end()
        async with patience():
            await task


async def runs(monitor: Monitor, other_than: int = 0) -> int:
    """The process of the sink, once it serves."""

    def serves() -> bool:
        sink = monitor.state.sinks.get(KEY)
        return sink is not None and sink.phase is Phase.RUNNING and sink.pid != other_than

    await until(monitor.state, serves)
    return present(monitor.state.sinks[KEY].pid)


async def test_a_sink_is_restarted_adopted_and_measured_and_ends_with_its_setting(tmp_path: Path) -> None:

    file = tmp_path / "shop.toml"
    listen = f"127.0.0.1:{free_port()}"
    written(file, listen, '"lines"')
    async with living(file, leave=True) as first:
        pid = await runs(first)
        os.kill(pid, signal.SIGKILL)
        pid = await runs(first, other_than=pid)
        assert first.state.sinks[KEY].restarts == 1
    async with living(file) as second:
        assert await runs(second) == pid
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{second.page}metrics").read().decode())
        assert 'wormhole_monitor_sink_up{host="h1",sink="lines"} 1.0' in page
        assert 'wormhole_sink_info{sink="lines",subscriber="one",kind="JSON lines"' in page
        written(file, listen, "")
        second.reload()
        await until(second.state, lambda: not second.state.sinks)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
