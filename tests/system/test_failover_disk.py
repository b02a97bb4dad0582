"""A RocksDB whose disk moves from host to host: the publisher that has it continues, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from subscriber_sdk import Subscriber, Update, serve
from tests.support import command_line
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.programs import Command

_FILE = """version = 1
[coordinator]
zookeeper = "{zookeeper}"
session_timeout = "2s"
[publisher]
markers = "zookeeper"
state_dir = "{folder}/state-{host}"
heartbeat = "500ms"
grace_period = "1s"
[monitor]
host = "{host}"
[sources.db1]
source = "rocksdb://{folder}/{host}/disk/db"
pin_folder = "{folder}/{host}/disk/pins"
[datasets.shop.copies.main.logs.db1]
source = "db1"
kind = "rocksdb"
hosts = ["a", "b"]
[applications.app]
dataset = "shop"
start = "earliest"
"""


class App(Subscriber):
    """Keeps the numbers that it was given, in order. It halts at a data loss."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def on_update(self, update: Update) -> None:
        assert isinstance(update.key[0], bytes)
        self.numbers.append(int(update.key[0]))

    async def has(self, count: int) -> None:
        """Until the first ``count`` have come."""
        await eventually(lambda: len(set(self.numbers)) == count, "everything")


class World:
    """Two hosts, of which one has the disk; their publishers."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        self.files = {host: folder / f"{host}.toml" for host in "ab"}
        self.publishers = {}
        for host, file in self.files.items():
            (folder / host).mkdir()
            file.write_text(_FILE.format(folder=folder, host=host, zookeeper=zookeeper))
            run = ("publisher", "run", "-c", str(file), "--log", "shop/main/db1")
            self.publishers[host] = Command(f"publisher-{host}", folder, *run)
        (folder / "a" / "disk").mkdir()
        self.sent = 0
        self.writer = self._writer("a")

    def _writer(self, host: str) -> RocksWriter:
        return RocksWriter(self.folder / host / "disk" / "db")

    def write(self, count: int) -> None:
        for _ in range(count):
            self.writer.put(b"%d" % self.sent, b"x" * 100)
            self.sent += 1

    def detach(self) -> None:
        """The database's program ends."""
        self.writer.close()
        self.writer.exit()

    def disk(self, host: str) -> Path:
        return self.folder / host / "disk"

    def attached(self, host: str) -> None:
        """It begins again, on that host."""
        self.writer = self._writer(host)

    async def command(self, *arguments: str) -> str:
        code, out, err = await asyncio.to_thread(command_line.run, *arguments)
        assert code == 0, err
        return out

    async def owner(self) -> str:
        shown = await self.command("publishers", "-c", str(self.files["a"]), "--json")
        return str(json.loads(shown)["logs"][0]["owner"]["host"])

    def close(self) -> None:
        for publisher in self.publishers.values():
            publisher.kill()
        self.writer.exit()


@pytest.fixture
def world(tmp_path: Path, zookeeper: str) -> Iterator[World]:
    made = World(tmp_path, zookeeper)
    yield made
    made.close()


@pytest.mark.allow_blocking("works with files and processes between the waits")
async def test_the_publisher_that_has_the_disk_goes_on(world: World) -> None:
    app, file = App(), str(world.files["a"])
    await world.command("config", "apply", file, "--yes")
    async with serve(app, application="app", listen=f"127.0.0.1:{free_port()}", coordinator=file):
        for publisher in world.publishers.values():
            publisher.start()
        world.write(20)
        await app.has(world.sent)
        world.publishers["a"].kill()  # its host died
        world.write(20)
        world.detach()
        world.disk("a").rename(world.disk("b"))
        world.attached("b")
        world.write(20)
        await app.has(world.sent)
        assert await world.owner() == "b"
        world.publishers["a"].start()
        world.write(20)
        world.detach()
        world.disk("b").rename(world.disk("a"))  # its publisher lives, and has the log and no database
        world.attached("a")
        world.write(20)
        await app.has(world.sent)
        assert await world.owner() == "a"
    firsts = list(dict.fromkeys(app.numbers))
    assert firsts == sorted(firsts)
    assert len(app.numbers) < 2 * world.sent, "few of them came twice"
