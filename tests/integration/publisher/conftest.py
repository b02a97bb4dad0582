"""A publisher over memory parts, and the world around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from caravan.backfill.boundaries import MemoryBoundaries
from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from publisher.flows.applications import Served
from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.known_flows import KnownFlows
from publisher.flows.ownership import Ownership
from publisher.publisher import Publisher
from publisher.stores.markers.memory import MemoryMarkers, MemoryMarkerStore
from publisher.wiring import wired
from tests.integration.publisher.receiving import taken
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.config import ApplicationConfig, DatasetConfig, ExistingRows, PublisherConfig
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import Registration
from wormhole.formats import ValueFormats
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.trust import Trust
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.log_source import LogRelay
from wormhole.ports.marker_store import FlowKey, StoredFlow
from wormhole.wire.v1 import push_pb2


async def _stopped() -> None:
    """The source is stopped already."""


class _SharedMarkers(MemoryMarkerStore):
    """As a store in ZooKeeper: every candidate has it open."""

    def open(self) -> None:
        """There is nothing to open."""

    def _records(self) -> dict[FlowKey, StoredFlow]:
        return self._markers.records


class World:
    """Everything that outlives a publisher: the log, the stored markers, who is registered and what is configured."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, long_s: float = 30.0, *, attaches: bool = False, log: str = "log"
    ) -> None:
        self.clock = clock
        self.log = log
        self.attaches = attaches
        self.shard_by = "log"
        self.source = MemorySource(log=log, sharding=Sharding("table"))
        self.tables = MemoryTables(self.source)
        self.boundaries = MemoryBoundaries()
        self.markers = MemoryMarkers()
        self.coordination = MemoryWorld()
        # So long that no test meets their end, however slow the machine (a stream ends after three silent heartbeats);
        # one that waits for it makes them short.
        self.settings: dict[str, Any] = {
            "grace_period": long_s,
            "handler_timeout": long_s,
            "heartbeat": long_s / 10,
            "stop_timeout": 0.2,
        }
        self.caravans = 4
        self.existing_rows = ExistingRows()
        self.formats = ValueFormats()
        self.relay: LogRelay | None = None
        self.trust: Trust | None = None
        self.witness: Path | None = None
        self.candidate: Candidate | None = None
        self._here = MemoryCoordinator(self.coordination)
        self.registrations: dict[str, Registration] = {}
        self.attached: dict[str, asyncio.Task[None]] = {}
        self.address = ""  # where the running publisher listens for them, once `listens` is set
        self.listens = asyncio.Event()

    def application(self, name: str = "app", **settings: Any) -> None:
        """Configure an application (anew)."""
        connect = "publisher" if self.attaches else "subscriber"
        config = ApplicationConfig(name=name, dataset="shop", **{"start": "earliest", "connect": connect, **settings})
        self.coordination.applications[name] = config
        self.coordination.signal.notify()

    def commit(self, *keys: str, table: str = "t") -> Datamarker:
        """Write one transaction."""
        return self.source.commit([(Op.UPSERT, table, key.encode(), {"value": b"v"}) for key in keys])

    async def register(self, subscriber: ScriptedSubscriber, *, started: float = 1.0) -> None:
        """The subscriber appears (again)."""
        if self.attaches:
            self.attached[subscriber.name] = asyncio.create_task(self._attach(subscriber, f"{started}"))
            return
        await self._here.start()
        self.registrations[subscriber.name] = await self._here.register_subscriber(subscriber.info(started=started))

    async def leaves(self, subscriber: ScriptedSubscriber) -> None:
        """The subscriber's entry goes."""
        if self.attaches:
            await self._detach(subscriber.name)
            return
        await self.registrations.pop(subscriber.name).close()

    async def _attach(self, subscriber: ScriptedSubscriber, instance: str) -> None:
        """Dial whichever publisher runs, again and again."""
        while True:
            await self.listens.wait()
            await subscriber.attach(self.address, instance)
            await asyncio.sleep(0.01)

    async def _detach(self, name: str) -> None:
        task = self.attached.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _listens(self, publisher: Publisher) -> None:
        await eventually(lambda: publisher.listener.address, "it listens")
        self.address = publisher.listener.address
        self.listens.set()

    def _ownership(self, coordinator: MemoryCoordinator) -> Ownership | None:
        if self.candidate is None:
            return None
        candidacy = Candidacy(coordinator, self.candidate, self.clock)
        return Ownership(coordinator, fenced=True, candidacy=candidacy, clock=self.clock)

    @asynccontextmanager
    async def publisher(self, stop_source: Callable[[], Awaitable[None]] = _stopped) -> AsyncIterator[Publisher]:
        """A publisher from its start to its graceful stop."""
        coordinator = MemoryCoordinator(self.coordination, clock=self.clock.monotonic)
        await coordinator.start()
        store = MemoryMarkerStore(self.markers) if self.candidate is None else _SharedMarkers(self.markers)
        store.open()
        dataset = DatasetConfig(
            name="shop",
            caravans={"max": self.caravans},  # type: ignore[arg-type]
            existing_rows=self.existing_rows,
            shard_by=self.shard_by,  # type: ignore[arg-type]
            copies={"main": {"logs": {self.log: {"source": "rocksdb:///none"}}}},  # type: ignore[dict-item]
        )
        served = Served(dataset, "main", self.log, "memory", PublisherConfig(**self.settings), self.trust, self.formats)
        publisher = wired(
            served,
            self.source,
            store,
            coordinator,
            KnownFlows(coordinator, self.witness, self.clock),
            clock=self.clock,
            relay=self.relay,
            open_tables=lambda: self.tables,
            boundaries=self.boundaries,
            ownership=self._ownership(coordinator),
        )
        running = asyncio.create_task(publisher.run(stop_source=stop_source))
        listening = asyncio.create_task(self._listens(publisher))
        try:
            yield publisher
        finally:
            listening.cancel()
            self.listens.clear()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            store.close()
            await coordinator.stop()


@pytest.fixture
def world() -> World:
    return World(fast_clock(), 120.0 * FAST)


@pytest.fixture(params=[False, True], ids=["dialled", "attached"])
async def world_of_either_direction(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The world of modules whose tests hold whichever side dials."""
    one = World(fast_clock(), 120.0 * FAST, attaches=request.param)
    yield one
    for name in tuple(one.attached):
        await one._detach(name)


@pytest.fixture
async def s1() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("app", "s1") as subscriber:
        yield subscriber


@pytest.fixture
async def first(world: World) -> Datamarker:
    """The application is configured, and one update of its one flow is committed: where that ends."""
    world.application()
    return world.commit("a")


@pytest.fixture
async def publisher(world: World) -> AsyncIterator[Publisher]:
    async with world.publisher() as running:
        yield running


@pytest.fixture
async def assign(world: World, s1: ScriptedSubscriber, publisher: Publisher) -> push_pb2.Assign:
    """The subscriber is there and takes the one flow that it is given."""
    await world.register(s1)
    return await taken(s1)
