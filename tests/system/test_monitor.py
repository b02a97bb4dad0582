"""A host's monitor with real publishers and a real ZooKeeper: killed, cut off, given wrong work, and asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import until
from tests.support.marked import MARK, marked
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.programs import Command
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.ready_file import process_started, read_ready, ready_path


class Monitor(Command):
    """``wormholectl monitor run``, started."""

    def __init__(self, place: Place, name: str, *options: str) -> None:
        run = ("monitor", "run", "-c", str(place.file), *options)
        super().__init__(name, place.folder, *run, environment={MARK: place.mark})
        self.start()

    def says(self, *texts: str) -> str:
        """The first line of its output that holds all ``texts``, once it is there."""

        def line() -> str:
            lines = self.output.read_text(errors="replace").splitlines()
            return next((one for one in lines if all(text in one for text in texts)), "")

        return until(line, lambda: f"it did not say {texts}: {self.tail()}")


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

    def serves(self, log: str, *, other_than: int | None = None) -> int:
        until(lambda: self.pid(log) not in (None, other_than), f"{log} is served")
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


def test_a_host_through_kills_an_outage_and_its_end(place: Place, own_zookeeper: EmbeddedZooKeeper) -> None:
    asyncio.run(publish_config(load(place.file)))
    first = Monitor(place, "first")
    served = place.serves("db1")

    # What cannot run is tried, given up and reported. The other log is not touched, and that of another host not run.
    told = first.says("shop/main/db2: given up, it ended 2 times within 60 s", "markers.sqlite")
    assert "Next: " in told
    assert place.pid("db1") == served

    # A publisher is killed.
    os.kill(served, signal.SIGKILL)
    first.says(f"shop/main/db1: process {served} was killed by SIGKILL", "restarted in")
    second_one = place.serves("db1", other_than=served)

    # A second monitor of the folder is refused.
    other = Monitor(place, "other")
    assert other.wait() == 2
    other.says(f"process {first.pid}")

    # ZooKeeper is gone; then the monitor is killed as well. The next one adopts what runs, from what is on disk.
    own_zookeeper.stop()
    first.says("coordination: ", "continues with the configuration that was read last")
    first.kill()
    assert process_started(second_one) is not None
    second = Monitor(place, "second")
    second.says(f"shop/main/db1: process {second_one} keeps running")
    second.says("configuration: last good one, of ", "shop/main/db1, shop/main/db2 here")
    second.says("shop/main/db2: process ", "does not answer within 2 s")  # it needs ZooKeeper, and waits for it
    assert place.pid("db1") == second_one

    # ZooKeeper is back: nothing is disturbed. The other log is mended and tried again when the monitor is asked to.
    own_zookeeper.start()
    second.says("configuration: current, from ZooKeeper")
    place.obstacle.rmdir()
    second.signal(signal.SIGHUP)
    place.serves("db2")
    assert place.pid("db1") == second_one

    # The end of the monitor is the end of all.
    assert second.stop() == 0
    second.says("stopped")
    assert marked(place.mark) == {}
    assert list((place.folder / "state/monitor/running").iterdir()) == []


def test_a_monitor_that_leaves_its_publishers_running_is_followed_by_one_that_takes_them_over(place: Place) -> None:
    text = place.file.read_text()
    config = text[: text.index("[coordinator]")] + "[coordinator]\nstatic = true\n" + text[text.index("[publisher]") :]
    place.file.write_text(config[: config.index("[datasets.shop.copies.main.logs.db2]")])
    first = Monitor(place, "first", "--leave-running")
    served = place.serves("db1")
    assert first.stop() == 0
    first.says("stopped; publishers keep running")
    assert place.pid("db1") == served
    second = Monitor(place, "second")
    second.says(f"process {served} keeps running")
    assert second.stop() == 0
    assert marked(place.mark) == {}


def test_a_second_monitor_of_the_same_host_starts_nothing(place: Place) -> None:
    """Two machines have one host name: the second one has a state folder of its own."""
    asyncio.run(publish_config(load(place.file)))
    first = Monitor(place, "first")
    served = place.serves("db1")
    text = place.file.read_text()
    place.file.write_text(text.replace(f'"{place.folder}/state"', f'"{place.folder}/clone"'))
    second = Monitor(place, "second")
    second.says("error [already-running]", "h1")
    assert second.wait() == 2
    assert place.pid("db1") == served
    assert read_ready(ready_path(place.folder / "clone", "shop", "main", "db1")) is None
    assert first.stop() == 0
    assert marked(place.mark) == {}
