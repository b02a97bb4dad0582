"""The configuration that a monitor follows, and the last good one on its disk."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from monitor import config_follower as module
from monitor import last_good_config
from monitor.config_follower import ConfigFollower
from monitor.desired_logs import DesiredLog, desired_logs
from monitor.desired_sinks import DesiredSink
from monitor.last_good_config import LastGoodConfig
from monitor.state import HostState, LogKey, Phase, PublisherState, SinkKey
from monitor.supervisor import Supervisor
from tests.support.eventually import patience
from tests.support.host_state import until
from tests.support.present import present
from wormhole.config import Config, parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import HostRequest, MonitorInfo
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError

# --- What a host runs follows the coordination service while it answers, and the disk while it does not


LOCAL = parse('version = 1\n[coordinator]\nzookeeper = "zk:1/w"\n[monitor]\nhost = "h1"\n', "local")


def fleet(*logs: str, host: str = "h1") -> Config:
    text = "version = 1\n"
    for log in logs:
        text += f'[datasets.shop.copies.main.logs.{log}]\nsource = "rocksdb:///{log}"\nhost = "{host}"\n'
    return parse(text, "fleet")


class Asked:
    """In the supervisor's place: what it was asked for."""

    def __init__(self) -> None:
        self.wanted: list[str] | None = None
        self.drained = self.allowed = False

    def set_desired(
        self, desired: Mapping[LogKey, DesiredLog], sinks: Mapping[SinkKey, DesiredSink], *, drained: bool
    ) -> None:
        self.wanted, self.drained = [str(key) for key in desired], drained

    def may_start(self, allowed: bool) -> None:
        self.allowed = allowed


class Host:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = MemoryWorld()
        self.coordinator = MemoryCoordinator(self.world)
        self.asked, self.state = Asked(), HostState("h1")

    def apply(self, *logs: str) -> None:
        self.world.datasets = dict(fleet(*logs).datasets)
        self.world.version += 1
        self.world.signal.notify()

    async def keep(self, *logs: str) -> None:
        kept = LastGoodConfig(fleet(*logs).datasets, False, time.time())
        await asyncio.to_thread(kept.store, self.folder / "last-good.json")

    def kinds(self, kind: str) -> list[str]:
        return [event.text for event in self.state.events if event.kind == kind]

    async def asked_for(self, *logs: str, drained: bool = False) -> None:
        wanted = [f"shop/main/{log}" for log in logs]
        await until(self.state, lambda: self.asked.wanted == wanted and self.asked.drained is drained)

    @asynccontextmanager
    async def following(
        self, config: Config = LOCAL, everything: Container[str] | None = None
    ) -> AsyncIterator[asyncio.Task[None]]:
        follower = ConfigFollower(
            config,
            self.state,
            cast("Supervisor", self.asked),
            self.folder,
            "http://127.0.0.1:7480/",
            lambda datasets: (desired_logs(config, datasets, everything=everything), {}),
            lambda _: self.coordinator,
        )
        task = asyncio.create_task(follower.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(module, "_FIRST_ANSWER_S", 0.02)
    monkeypatch.setattr(module, "_RETRY_S", 0.02)
    monkeypatch.setattr(module, "_UPDATE_EVERY_S", 0.02)
    return Host(tmp_path)


async def test_what_is_applied_runs_and_is_kept_on_disk(host: Host) -> None:
    host.apply("db1")
    async with host.following():
        await host.asked_for("db1")
        assert host.state.configuration.startswith("current, from ZooKeeper")
        assert host.state.coordination == "connected"
        await until(host.state, lambda: host.asked.allowed)
        host.apply("db1", "db2")
        await host.asked_for("db1", "db2")
        host.world.hosts["h1"] = HostRequest(drained=True, by="amy@desk", at=1.0)
        host.world.signal.notify()
        await host.asked_for("db1", "db2", drained=True)
        assert host.kinds("drained") == ["drained, by amy@desk"]
        assert host.state.drained_by == "amy@desk"
        async with patience():
            while (  # noqa: ASYNC110 - no event tells
                kept := await asyncio.to_thread(LastGoodConfig.load, host.folder / "last-good.json")
            ) is None or not kept.drained:
                await asyncio.sleep(0.01)
    assert kept.datasets == host.world.datasets


async def test_while_contact_is_lost_nothing_changes(host: Host) -> None:
    host.apply("db1")
    async with host.following():
        await host.asked_for("db1")
        host.coordinator.lose()
        await until(host.state, lambda: host.state.coordination == "lost")
        assert "continues with the configuration that was read last" in host.kinds("coordination")[-1]
        assert host.asked.wanted == ["shop/main/db1"]
        host.world.datasets = dict(fleet("db2").datasets)
        host.coordinator.restore()
        await host.asked_for("db2")


class Away(MemoryCoordinator):
    """Nothing answers until :attr:`back` is set."""

    back = False

    async def start(self) -> None:
        if not self.back:
            raise CoordinationLost("nothing answers at zk:1")
        await super().start()


async def test_without_contact_at_the_start_the_disk_counts_until_there_is(host: Host) -> None:
    await host.keep("db1")
    away = host.coordinator = Away(host.world)
    host.apply("db2")
    async with host.following():
        await host.asked_for("db1")
        await until(host.state, lambda: host.asked.allowed)
        assert host.state.configuration.startswith("last good one, of ")
        assert host.kinds("coordination")[0].startswith("lost: nothing answers at zk:1")
        away.back = True
        await host.asked_for("db2")
        assert host.state.configuration.startswith("current")


@pytest.mark.parametrize("text", [None, "broken"])
async def test_with_neither_it_says_so_and_waits(host: Host, text: str | None) -> None:
    if text is not None:
        await asyncio.to_thread((host.folder / "last-good.json").write_text, text)
    away = host.coordinator = Away(host.world)
    host.apply("db1")
    async with host.following():
        await until(host.state, lambda: host.state.configuration.startswith("none: ZooKeeper does not answer"))
        assert host.asked.wanted is None
        away.back = True
        await host.asked_for("db1")


async def test_a_zookeeper_that_forgot_everything_is_not_obeyed(host: Host) -> None:
    await host.keep("db1")
    async with host.following():
        await until(host.state, lambda: host.asked.wanted is not None)
        assert host.asked.wanted == ["shop/main/db1"]
        await until(host.state, lambda: any("holds no configuration at all" in text for text in host.kinds("config")))
        assert host.asked.wanted == ["shop/main/db1"]
        host.apply("db1", "db2")
        await host.asked_for("db1", "db2")
        host.apply()  # somebody removed the last of them: that is meant
        await host.asked_for()


async def test_a_second_monitor_of_the_host_is_refused_and_starts_nothing(host: Host) -> None:
    host.apply("db1")
    first = MemoryCoordinator(host.world)
    await first.start()
    await first.register_monitor(MonitorInfo("h1", 1, "", 0.0))
    async with host.following() as task:
        async with patience():
            with pytest.raises(ExceptionGroup) as caught:
                await task
    assert caught.group_contains(ConfigError)
    assert not host.asked.allowed
    await first.stop()


async def test_others_see_what_the_monitor_runs(host: Host) -> None:
    host.apply("db1")
    key = LogKey("shop", "main", "db1")
    async with host.following():
        await until(host.state, lambda: host.asked.allowed)
        host.state.publishers[key] = PublisherState(key, Phase.BACKING_OFF)
        host.state.changed()
        async with patience():
            while dict((await host.coordinator.monitors())[0].publishers) != {"shop/main/db1": "backing_off"}:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
        [info] = await host.coordinator.monitors()
        assert (info.host, info.address) == ("h1", "http://127.0.0.1:7480/")


async def test_a_disk_without_room_is_reported_and_nothing_else(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    host.apply("db1")
    monkeypatch.setattr(last_good_config, "replace_file", full)
    async with host.following():
        await until(host.state, lambda: any("cannot be written" in text for text in host.kinds("config")))
        assert host.asked.wanted == ["shop/main/db1"]


async def test_everything_of_a_file_whatever_host_it_names(host: Host) -> None:
    host.world.datasets = dict(fleet("db1", host="h9").datasets)
    async with host.following(everything=("shop",)):
        await host.asked_for("db1")


async def test_the_static_form_is_its_file_and_keeps_nothing(host: Host) -> None:
    config = parse("version = 1\n[coordinator]\nstatic = true\n", "test").model_copy(
        update={"datasets": fleet("db1").datasets}
    )
    host.state.host = config.monitor.host_name
    host.world.datasets = dict(fleet("db1", host=host.state.host).datasets)
    async with host.following(config):
        await host.asked_for("db1")
        assert host.state.configuration == "current, from the file"
        assert host.state.coordination == "static"
    assert list(host.folder.iterdir()) == []


async def test_whole_sources_of_an_earlier_release_are_reported_until_the_host_lists_its_own(host: Host) -> None:
    def told() -> list[str]:
        return [text for text in host.kinds("config") if "hosts adopt" in text]

    host.apply("db1")
    async with host.following():
        await host.asked_for("db1")
        host.apply("db1", "db2")
        await host.asked_for("db1", "db2")
        host.apply("db1")
        await host.asked_for("db1")
    one, two, again = told()
    assert one.startswith("the source of shop/main/db1 comes from ZooKeeper")
    assert "shop/main/db1, shop/main/db2" in two
    assert again == one
    host.state.events.clear()
    async with host.following(LOCAL.model_copy(update={"sources": {}})):
        await host.asked_for("db1")  # which its publisher refuses
    assert told() == []


# --- The configuration on disk is whole, or not there, or told to be of no use


CONFIG = parse(
    """
version = 1
[datasets.shop]
shard_by = "table"
caravans = { max = 2 }
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///data/db1"
host = "h1"
""",
    "test",
)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "last-good.json"
    assert LastGoodConfig.load(path) is None
    for drained in (True, False):
        kept = LastGoodConfig(CONFIG.datasets, drained, 12.5)
        kept.store(path)
        assert LastGoodConfig.load(path) == kept
    assert list(tmp_path.iterdir()) == [path], "nothing half-made stays"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"datasets": {"shop": {}}, "drained": false, "read_at": 1}', '{"datasets": [], "drained": 1}'],
)
def test_what_makes_no_sense_is_reported_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last-good.json"
    path.write_text(text)
    with pytest.raises(WormholeError, match=r"last-good\.json"):
        LastGoodConfig.load(path)


def test_a_write_that_fails_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "last-good.json"
    kept = LastGoodConfig(CONFIG.datasets, False, 1.0)
    kept.store(path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        LastGoodConfig({}, True, 2.0).store(path)
    assert LastGoodConfig.load(path) == kept
    assert list(tmp_path.iterdir()) == [path], "nothing half-made stays"


def test_two_that_write_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "last-good.json"
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: LastGoodConfig(CONFIG.datasets, number % 2 == 0, 10.0**number).store(path), range(200)
            )
        )
    kept = present(LastGoodConfig.load(path))
    assert kept.datasets == CONFIG.datasets
