"""Parking in a mass replay, with all sides for real but Spark and the log: a task, the publisher's admin service,
the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from publisher.operate.admin import serve_admin
from publisher.publisher import Publisher
from publisher.wiring import operated
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.replay.pieces import Formats
from spark_replay.replay.publisher import Reach, ReplayClient
from spark_replay.replay.task import Ended, Task, TaskOutcome, push_log
from subscriber_sdk import RetryPolicy, Subscriber, Update, serve
from tests.integration.publisher.conftest import World
from tests.support.archives import write_file
from tests.support.eventually import eventually
from wormhole.config import TlsFiles
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.host.local_admin import LocalAdmin
from wormhole.model.errors import StreamBroken
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import DeadLetter, Parcel
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

KEY, FLOW = ("app", "log.t"), "app/log.t"
LARGE = 300_000  # bytes of a value: its parcel comes in several requests


class Keys(Subscriber):
    """Fails for keys that begin with ``bad``; remembers the others."""

    def __init__(self) -> None:
        self.bad = b"bad"
        self.seen: list[bytes] = []

    async def on_update(self, update: Update) -> None:
        key = update.key[0]
        assert isinstance(key, bytes)
        if self.bad and key.startswith(self.bad):
            raise ValueError("no")
        self.seen.append(key)


class Scene:
    """A log of several transactions, archived; a publisher whose flow a replay has, at its first row; a subscriber."""

    def __init__(self, folder: Path, *, attaches: bool) -> None:
        self.folder = folder
        self.world = World(attaches=attaches)
        self.world.settings["state_dir"] = folder / "state"
        self.world.application(on_failure="park")
        self.begin = self.world.source.latest()
        self.keys = Keys()
        self.tls: TlsFiles | None = None
        """What the tasks prove themselves with."""
        self.options: dict[str, Any] = {"retry": RetryPolicy(attempts=1, first_wait=0.01, longest_wait=0.01)}
        self.patience_s = 60.0
        self.dials = ""
        """Where the subscriber dials, if not the publisher itself."""
        self.publisher: Publisher
        self.driver: ReplayClient
        self._reader = self.world.source.open(self.begin)
        self.store: ArchiveStore = open_store(str(folder / "archive"), "shop", copy="main", create=True)

    async def archived(self, *keys: str) -> Datamarker:
        """One transaction, in the log and in a file of its own."""
        end = self.world.commit(*keys)
        piece = self._reader.read(64 << 20, 0.0)
        assert piece is not None
        await asyncio.to_thread(write_file, self.store, "log.t", [piece], end, begin=self.begin)
        return end

    async def replayed(self, until: Datamarker) -> TaskOutcome:
        """What a task came to."""
        task = Task(
            flow=FLOW,
            replay="r1",
            ticket=self.driver.ticket,
            name="n1",
            publisher=self.driver.reach,
            store=self.store,
            shard="log.t",
            begin=self.begin,
            until=until,
            where="",
            formats=Formats(),
            rate=0.0,
            patience_s=self.patience_s,
            tls=self.tls,
            heartbeat_s=5.0,
            max_frame=1 << 20,
        )
        return await asyncio.to_thread(push_log, task)

    @property
    def parked(self) -> list[tuple[str, bool]]:
        """Ids of what is stored, and whether it is to be delivered again."""
        letters = self.world.markers.letters.get(KEY, {})
        return sorted((id_, letter.retrying) for id_, (letter, _) in letters.items())


@asynccontextmanager
async def taking_part(scene: Scene) -> AsyncIterator[None]:
    coordinator = MemoryCoordinator(scene.world.coordination)
    await coordinator.start()
    options = scene.options
    async with scene.world.publisher() as scene.publisher:
        publisher = scene.publisher
        served, reached = publisher.served, operated(publisher)
        async with serve_admin(
            served, publisher.process, reached, publisher.clock, "127.0.0.1:0", served.trust
        ) as address:
            await eventually(lambda: KEY in scene.publisher.assigner.flows, "registered")
            local = LocalAdmin(served.settings.state_dir, served.dataset.name, served.copy, served.log)
            reach = Reach(address, scene.tls, "db1" if scene.tls else "")
            scene.driver = ReplayClient(reach, FLOW, "r1", local=local)
            what = admin_pb2.BeginReplay(who="me@here", mode=admin_pb2.LOG, lease_s=600)
            await asyncio.to_thread(scene.driver.begin, what)
            if scene.world.attaches:
                await eventually(lambda: publisher.listener.address, "it listens")
                options["dial"] = [scene.dials or publisher.listener.address]
            async with serve(scene.keys, application="app", coordinator=coordinator, **options):
                try:
                    yield
                finally:
                    scene.driver.close()
    await coordinator.stop()


@pytest.fixture(params=[False, True], ids=["dialled", "attached"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, attaches=request.param)


def dying(monkeypatch: pytest.MonkeyPatch, *, stored: bool) -> list[str]:
    """The first time that something is to be parked the connection ends before the subscriber is told; ``stored``:
    the publisher has it then."""
    right = ReplayClient.park
    died: list[str] = []

    def park(self: ReplayClient, epoch: int, letter: DeadLetter, parcel: Parcel) -> str:
        if died:
            return right(self, epoch, letter, parcel)
        died.append(letter.id)
        if stored:
            assert right(self, epoch, letter, parcel) == ""
        raise StreamBroken("as if the task had died here")

    monkeypatch.setattr(ReplayClient, "park", park)
    return died


@pytest.mark.parametrize("stored", [None, False, True])
async def test_one_bad_update_does_not_stop_a_replay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, stored: bool | None
) -> None:
    died = [] if stored is None else dying(monkeypatch, stored=stored)
    await scene.archived("a", "bad")
    await scene.archived("b", "bad")
    end = await scene.archived("c")
    async with taking_part(scene):
        outcome = await scene.replayed(end)
        assert (outcome.ended, outcome.marker) == (Ended.DONE, end), outcome.message
        assert (outcome.epoch > 1) is bool(died), "what died is tried again, in a newer epoch"
        assert scene.keys.seen[-3:] == [b"a", b"b", b"c"]
        assert scene.parked == [("mem:1:1", False), ("mem:2:1", False)], "each once, with what follows of its row"
        await asyncio.to_thread(scene.driver.finish, outcome.epoch, end)

        # The flow is live, with what was parked in the replay.
        last = scene.world.commit("bad", "d")
        flow = scene.publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.durable == last, "processed or parked")
        assert (scene.keys.seen[-1], len(scene.parked)) == (b"d", 3)
        scene.keys.bad = b""
        before = len(scene.keys.seen)
        await scene.publisher.dead_letters.retry(flow, "")
        await eventually(lambda: not scene.parked, "delivered again")
        assert scene.keys.seen[before:] == [b"bad"] * 3


async def test_what_is_parked_at_the_beginning_stays_before_what_follows(scene: Scene) -> None:
    first = await scene.archived("bad")
    async with taking_part(scene):
        outcome = await scene.replayed(first)
        await asyncio.to_thread(scene.driver.finish, outcome.epoch, first)
        flow = scene.publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.caravan_flow is not None, "live")
        end = await scene.archived("bad", "e")
        await eventually(lambda: flow.delivery.durable == end, "processed or parked")

        # Another replay, from the first row on: what is parked comes by again, and is to be delivered again meanwhile.
        what = admin_pb2.BeginReplay(who="me@here", mode=admin_pb2.LOG, lease_s=600)
        what.begin.CopyFrom(marker_to_message(scene.begin))
        await asyncio.to_thread(scene.driver.begin, what)
        await scene.publisher.dead_letters.retry(flow, "")
        scene.keys.seen.clear()
        scene.keys.bad = b""
        outcome = await scene.replayed(end)
        assert outcome.ended is Ended.DONE, outcome.message
        assert scene.keys.seen == [b"e"], "nothing overtakes what is parked"
        assert scene.parked == [("mem:1:0", True), ("mem:2:0", True)], "still marked, neither lost nor twice"
        await asyncio.to_thread(scene.driver.finish, outcome.epoch, end)
        await eventually(lambda: not scene.parked, "delivered when the flow is live")
        assert scene.keys.seen == [b"e", b"bad", b"bad"]


async def test_a_large_update_is_parked_whole_and_at_the_bound_the_flow_s_replay_ends(scene: Scene) -> None:
    scene.world.settings["dead_letters"] = 1
    large = "bad" + "x" * LARGE
    await scene.archived(large)
    end = await scene.archived("bad2")
    async with taking_part(scene):
        outcome = await scene.replayed(end)
        assert outcome.ended is Ended.FAILED
        assert "1 updates are parked, which is publisher.dead_letters" in outcome.message
        [(letter, parcel)] = scene.world.markers.letters[KEY].values()
        assert (letter.id, len(parcel.body) > LARGE) == ("mem:1:0", True)
