"""A host's monitor with real publishers and a real ZooKeeper: killed, cut off, given wrong work, and asked to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually, patience
from tests.support.marked import MARK, marked
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.ensemble import WORMHOLECTL
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.ready_file import process_started, read_ready, ready_path


class Monitor:
    """``wormholectl monitor run`` in a process of its own; what it says on standard error are the events to wait
    for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._seen: list[str] = []

    @classmethod
    async def start(cls, config: Path, mark: str, *options: str) -> Monitor:
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", WORMHOLECTL, "monitor", "run", "-c", str(config), *options),
                env={**os.environ, MARK: mark},
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
            )
        )

    async def says(self, *texts: str) -> str:
        """The next line that holds all ``texts``."""
        assert self.process.stderr is not None
        try:
            async with patience():
                while line := (await self.process.stderr.readline()).decode():
                    message = str(json.loads(line)["message"]) if line.startswith("{") else line
                    self._seen.append(message)
                    if all(text in message for text in texts):
                        return message
        except TimeoutError:
            pass
        raise AssertionError(f"it did not say {texts}, but:\n" + "\n".join(self._seen))

    async def ends(self) -> int:
        assert self.process.stderr is not None
        async with patience():
            self._seen += (await self.process.stderr.read()).decode().splitlines()
            return await self.process.wait()


class Place:
    """A host's folder, its configuration file, and two logs of one store each; the second cannot be served until it
    is mended."""

    def __init__(self, folder: Path, zookeeper: EmbeddedZooKeeper, stores: list[RocksWriter]) -> None:
        self.folder, self.file = folder, folder / "host.toml"
        self.mark = uuid.uuid4().hex
        self.obstacle = folder / "state/shop/main/db2/markers.sqlite"
        self.obstacle.mkdir(parents=True)
        self.file.write_text(f"""
version = 1
[coordinator]
zookeeper = "{zookeeper.hosts}/wormhole"
session_timeout = "2s"
connect_timeout = "2s"
[publisher]
state_dir = "{folder}/state"
[monitor]
host = "h1"
listen = "127.0.0.1:0"
restart = {{ first_wait = "50ms", longest_wait = "200ms", crashes = 2, within = "60s" }}
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{stores[0].path}"
host = "h1"
[datasets.shop.copies.main.logs.db2]
source = "rocksdb://{stores[1].path}"
host = "h1"
[datasets.shop.copies.main.logs.db3]
source = "rocksdb:///of/another/host"
host = "h2"
""")

    def pid(self, log: str) -> int | None:
        """The process id of the publisher that serves the log."""
        told = read_ready(ready_path(self.folder / "state", "shop", "main", log))
        return None if told is None else told.pid

    async def serves(self, log: str, *, other_than: int | None = None) -> int:
        await eventually(lambda: self.pid(log) not in (None, other_than), f"{log} is served")
        pid = self.pid(log)
        assert pid is not None
        return pid


@pytest.fixture
def place(tmp_path: Path, own_zookeeper: EmbeddedZooKeeper) -> Iterator[Place]:
    stores = [RocksWriter(tmp_path / name) for name in ("store1", "store2")]
    place = Place(tmp_path, own_zookeeper, stores)
    yield place
    for store in stores:
        store.exit()
    for pid in marked(place.mark):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.allow_blocking("looks at files and at /proc")
async def test_a_host_through_kills_an_outage_and_its_end(place: Place, own_zookeeper: EmbeddedZooKeeper) -> None:
    await publish_config(load(place.file))
    first = await Monitor.start(place.file, place.mark)
    served = await place.serves("db1")

    # What cannot run is tried, given up and told; the other one is not touched, and that of another host not run.
    told = await first.says("shop/main/db2: given up, it ended 2 times within 60 s", "markers.sqlite")
    assert "Next: " in told
    assert place.pid("db1") == served

    # A publisher is killed.
    os.kill(served, signal.SIGKILL)
    await first.says(f"shop/main/db1: process {served} was killed by SIGKILL", "restarted in")
    second_one = await place.serves("db1", other_than=served)

    # A second monitor of the folder is refused.
    other = await Monitor.start(place.file, place.mark)
    assert await other.ends() == 2
    assert f"process {first.process.pid}" in "".join(other._seen)

    # ZooKeeper is gone; then the monitor is killed as well. The next one adopts what runs, from what is on disk.
    await asyncio.to_thread(own_zookeeper.stop)
    await first.says("coordination: ", "continues with the configuration that was read last")
    first.process.kill()
    await first.ends()
    assert process_started(second_one) is not None
    second = await Monitor.start(place.file, place.mark)
    await second.says(f"shop/main/db1: process {second_one} keeps running")
    await second.says("configuration: last good one, of ", "shop/main/db1, shop/main/db2 here")
    await second.says("shop/main/db2: process ", "does not answer within 2 s")  # it needs ZooKeeper, and waits for it
    assert place.pid("db1") == second_one

    # Back again: nothing is disturbed. Mended and asked to, it tries the other one again.
    await asyncio.to_thread(own_zookeeper.start)
    await second.says("configuration: current, from ZooKeeper")
    place.obstacle.rmdir()
    second.process.send_signal(signal.SIGHUP)
    await place.serves("db2")
    assert place.pid("db1") == second_one

    # And its end is the end of all.
    second.process.send_signal(signal.SIGTERM)
    await second.says("stopped")
    assert await second.ends() == 0
    assert marked(place.mark) == {}
    assert list((place.folder / "state/monitor/running").iterdir()) == []


@pytest.mark.allow_blocking("looks at files and at /proc")
async def test_a_monitor_that_leaves_its_publishers_running_is_followed_by_one_that_takes_them_over(
    place: Place,
) -> None:
    text = place.file.read_text()
    config = text[: text.index("[coordinator]")] + "[coordinator]\nstatic = true\n" + text[text.index("[publisher]") :]
    place.file.write_text(config[: config.index("[datasets.shop.copies.main.logs.db2]")])
    first = await Monitor.start(place.file, place.mark, "--leave-running")
    served = await place.serves("db1")
    first.process.send_signal(signal.SIGTERM)
    await first.says("stopped; publishers keep running")
    assert await first.ends() == 0
    assert place.pid("db1") == served
    second = await Monitor.start(place.file, place.mark)
    await second.says(f"process {served} keeps running")
    second.process.send_signal(signal.SIGTERM)
    assert await second.ends() == 0
    assert marked(place.mark) == {}
