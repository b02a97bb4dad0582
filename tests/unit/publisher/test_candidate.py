"""What a publisher contends for its log as: what it asks of its server, and whom it lets serve first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from publisher import daemon
from publisher.flows.candidacy import Candidate
from publisher.flows.known_flows import KnownFlows
from publisher.flows.served_applications import ServedApplications
from publisher.stores.markers import ZooKeeperMarkerStore
from publisher.stores.source_state import InheritedState
from tests.support.markers import marker
from tests.support.present import present
from wormhole.config import Config, parse
from wormhole.config.one_log import of_one_log
from wormhole.coordination.connect import connect
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import FlowRecord, LogGroup, PublisherInfo
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions, Standing

COPIES = """
[datasets.shop.copies.main.logs.db1]
source = "mysql://w@a"
[datasets.shop.copies.west.logs.db1]
source = "mysql://w@b"
[datasets.shop.copies.lab.logs.db1]
source = "mysql://w@c"
[datasets.other.copies.main.logs.db1]
source = "mysql://w@d"
[applications.others]
dataset = "other"
start = "latest"
[applications.labs]
dataset = "shop"
copy = "lab"
start = "latest"
"""
TURNS = f"""{COPIES}
[datasets.shop.failover]
copies = ["main", "west"]
[applications.cache]
dataset = "shop"
start = "latest"
"""
APART = f"""{COPIES}
[applications.cache]
dataset = "shop"
copy = "main"
start = "latest"
"""
ALONE = """
[datasets.shop.copies.main.logs.db1]
source = "mysql://w@a"
[applications.cache]
dataset = "shop"
start = "latest"
"""


class Datastore:
    """Answers for a server, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def url_of_log(self, url: str, log: str) -> str:
        return url

    def standing(self, url: str, login: object, delivered: Collection[str], *, failover: bool) -> Standing:
        self.asked.append(set(delivered))
        return Standing("server")


class Scene:
    """One configuration, its coordination, and its markers in ZooKeeper."""

    def __init__(self, zookeeper: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self.folder = zookeeper, folder
        self.datastore = Datastore()
        monkeypatch.setattr(daemon, "datastore", lambda kind: self.datastore)
        self.stack = AsyncExitStack()

    def config(self, text: str) -> Config:
        head = f"""
            version = 1
            [coordinator]
            zookeeper = "{self._root}"
            [publisher]
            markers = "zookeeper"
            state_dir = "{self.folder}"
            [monitor]
            host = "h"
            """
        return parse(head + text, "test")

    async def candidate(self, text: str, copy: str) -> tuple[Candidate, InheritedState, ZooKeeperMarkerStore]:
        """As the publisher of the log db1 has it, which is given no more than its part of the configuration."""
        whole = await asyncio.to_thread(self.config, text)
        config = of_one_log(whole, "shop", copy, "db1")
        store = ZooKeeperMarkerStore(config.coordinator, "db1")
        await asyncio.to_thread(store.open)
        self.stack.push_async_callback(asyncio.to_thread, store.close)
        coordinator = MemoryCoordinator(MemoryWorld(whole))
        await coordinator.start()
        self.stack.push_async_callback(coordinator.stop)
        applications = ServedApplications(coordinator, config.datasets["shop"], copy)
        task = asyncio.create_task(applications.run())
        self.stack.push_async_callback(asyncio.wait, [task])
        self.stack.callback(task.cancel)
        place = present(config.datasets["shop"].copies[copy].logs["db1"].inline)
        served, options = ("shop", copy, "db1"), SourceOptions("db1", self.folder, Sharding("log"), 1 << 20, 1 << 20)
        known = KnownFlows(coordinator, self.folder / "flows.json")
        candidate = daemon._candidate(config, served, place, options, store, known, applications)
        inherited = daemon._inherited(config, served, store, applications)
        return candidate, inherited, store


@pytest.fixture
async def scene(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    made = Scene(zookeeper, tmp_path, monkeypatch)
    yield made
    await made.stack.aclose()


def deliver(store: ZooKeeperMarkerStore, **offsets: int) -> None:
    for application, offset in offsets.items():
        store.register((application, "db1"), marker(offset), "latest")


@pytest.mark.parametrize(
    ("text", "copy", "asked"),
    [
        (TURNS, "main", {"1"}),
        (TURNS, "west", {"1"}),
        (TURNS, "lab", {"3"}),
        (APART, "main", {"1"}),
        (APART, "west", set()),
    ],
)
async def test_a_server_is_asked_for_what_its_log_delivered(
    scene: Scene, text: str, copy: str, asked: set[str]
) -> None:
    """Markers for another dataset's or copy's log of that name, and a deleted application's markers, do not count."""
    candidate, _, store = await scene.candidate(text, copy)
    await asyncio.to_thread(deliver, store, cache=1, others=2, labs=3, gone=4)
    await candidate.look()
    assert scene.datastore.asked == [asked]


async def test_a_publisher_of_the_failover_is_waited_for_when_there_is_none_any_more(scene: Scene) -> None:
    former = LogGroup("shop", "@failover", "db1")
    for text in (APART, ALONE):
        candidate, _, _ = await scene.candidate(text, "main")
        assert list(await candidate.former()) == [], "there never was one"
    candidate, inherited, _ = await scene.candidate(TURNS, "west")
    assert [str(group) for group in await candidate.former()] == ["shop/main/db1", "shop/west/db1"]
    await asyncio.to_thread(inherited.read, "histories")
    for text, copy, waits in (
        (APART, "main", True),
        (ALONE, "main", True),
        (APART, "west", True),
        (APART, "lab", False),
    ):
        candidate, _, _ = await scene.candidate(text, copy)
        assert list(await candidate.former()) == [former] * waits, (text, copy)


async def test_a_copy_beside_a_failover_waits_for_no_publisher_of_it(scene: Scene) -> None:
    _, inherited, _ = await scene.candidate(TURNS, "main")
    await asyncio.to_thread(inherited.read, "histories")
    candidate, _, _ = await scene.candidate(TURNS, "lab")
    assert list(await candidate.former()) == []


async def test_a_note_that_is_damaged_keeps_no_log_from_its_publisher(scene: Scene) -> None:
    """It cannot be opened then, which its publisher reports."""
    candidate, inherited, store = await scene.candidate(APART, "main")
    path = store._paths.log_state(LogGroup("shop", "@failover", "db1"), "turn")
    await asyncio.to_thread(store._client.kazoo.create, path, b"?", makepath=True)
    assert list(await candidate.former()) == []
    with pytest.raises(Exception, match=f"{path} holds nothing that a publisher wrote"):
        await asyncio.to_thread(inherited.read, "histories")


async def test_histories_follow_a_failover_that_is_removed_and_configured_again(scene: Scene) -> None:
    """The histories of a copy beside the failover are its own, however far they reach."""
    texts = [ALONE, TURNS, APART, TURNS, ALONE]
    for number, text in enumerate(texts, 1):
        _, inherited, _ = await scene.candidate(text, "main")
        found = await asyncio.to_thread(inherited.read, "histories")
        assert [one["number"] for one in found.get("incarnations", ())] == list(range(1, number)), text
        incarnations = [{"number": one} for one in range(1, number + 1)]
        await asyncio.to_thread(inherited.write, "histories", {"incarnations": incarnations})
        if text != ALONE:
            _, lab, _ = await scene.candidate(text, "lab")
            await asyncio.to_thread(lab.write, "histories", {"incarnations": [{"number": 90 + number}]})


async def test_a_look_reads_the_records_of_its_own_flows_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    config = await asyncio.to_thread(scene.config, TURNS)
    coordinator = connect(config)
    await coordinator.start()
    scene.stack.push_async_callback(coordinator.stop)
    flows = [(name, shard) for name in ("cache", "others", "labs") for shard in ("db1", "db2", "db1.t")]
    await coordinator.write_flows(dict.fromkeys(flows, FlowRecord("me", "s1", 3, "live")))
    for log in ("db1", "db2"):
        group = LogGroup("shop", "main", log)
        await coordinator.own_log(group, PublisherInfo("shop", "main", log, "h", 1, "", 1.0), server="", why="")
    asked: list[str] = []
    call, get_all = coordinator._session.call, coordinator._nodes.get_all  # type: ignore[attr-defined]

    async def counting(what: str, ask: Any) -> Any:
        asked.append(what)
        return await call(what, ask)

    async def reading(paths: Sequence[str]) -> Any:
        asked.extend(paths)
        return await get_all(paths)

    monkeypatch.setattr(coordinator._session, "call", counting)  # type: ignore[attr-defined]
    monkeypatch.setattr(coordinator._nodes, "get_all", reading)  # type: ignore[attr-defined]
    known = KnownFlows(coordinator, scene.folder / "flows.json", includes=LogGroup("shop", "main", "db1").includes)
    await known.follow(["cache"])
    assert [what.rpartition("/")[2] for what in asked] == ["flows", "db1", "db1.t"]
    assert all("/applications/cache/" in what for what in asked)
    asked.clear()
    owners = await coordinator.log_owners([LogGroup("shop", "main", "db1")])
    assert [one.owner is not None for one in owners.values()] == [True]
    assert not [what for what in asked if "db2" in what]
