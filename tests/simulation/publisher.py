"""A virtual publisher process: the product's life of a publisher, its ownership, assigner, marker writer and
registration, without log, caravans and gRPC.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from publisher.flows.applications import Applications, Served
from publisher.flows.assigner import Assigner, Timeouts
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.epoch_openings import EpochOpenings
from publisher.flows.flow_states import FlowStates
from publisher.flows.housekeeping import Housekeeping
from publisher.flows.known_flows import KnownFlows
from publisher.flows.ownership import LogHandedOver, Ownership
from publisher.flows.records import FlowRecords
from publisher.flows.refused_epochs import RefusedEpochs
from publisher.flows.registrar import Registrar
from publisher.flows.subscriber_answers import Deliveries
from publisher.flows.this_process import ThisProcess
from publisher.publisher import Publisher
from publisher.push.attach_service import AttachService
from publisher.push.attached import AttachedSubscribers
from publisher.stores.markers import ZooKeeperMarkerStore
from tests.simulation.attaching import VirtualListener
from tests.simulation.loop import SimulatedLoop
from tests.simulation.stream import Around, place
from tests.simulation.world import Process
from wormhole.config import CoordinatorConfig, DatasetConfig, PublisherConfig
from wormhole.coordination.port import LogGroup
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import SourceUnavailable, WormholeError
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Standing

__all__ = ["Desk", "serve"]

_BEFORE_RESTART_S: Final = 0.5


class Desk:
    """What publishers of one schedule share. ``files``: the witness of each host, by path. ``looks``: whether a look at
    the datastore succeeds now, by host.
    """

    def __init__(
        self,
        settings: CoordinatorConfig,
        publishing: PublisherConfig,
        dataset: DatasetConfig,
        copy: str,
        log: str,
        shards: tuple[str, ...],
    ) -> None:
        self.settings, self.publishing, self.dataset = settings, publishing, dataset
        self.copy, self.log, self.shards = copy, log, shards
        self.group = LogGroup(dataset.name, dataset.group(copy), log)
        self.served = Served(dataset, copy, log, "mysql", publishing, None)
        self.ranks: dict[str, int] = {}
        self.unready: set[str] = set()
        self.leaving: dict[Process, asyncio.Event] = {}
        self.serving: dict[Process, Publisher] = {}


class _Source:
    """The log, as far as a publisher without caravans asks for it."""

    def __init__(self, shards: tuple[str, ...], end: Callable[[], int]) -> None:
        self._shards, self._end = shards, end

    def shards(self) -> tuple[str, ...]:
        return self._shards

    def latest(self) -> Datamarker:
        return place(self._end())

    def locate(self, text: str) -> Datamarker:
        return place(0)


class _Nothing:
    """Takes the place of parts that have nothing to do: every method does nothing and gives nothing."""

    lead: Any = None

    def oldest_place(self) -> None:
        """No log is given up."""

    def __getattr__(self, name: str) -> Any:
        return _nothing

    async def run(self, *anything: object) -> None:
        await asyncio.Event().wait()


class _Void(dict[str, Any]):
    """Nothing, which may be awaited."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


def _nothing(*anything: object, **more: object) -> Any:
    return _Void()


class _Log:
    """The log as a publisher tails it, without caravans. It cannot be read where a look at the datastore fails."""

    def __init__(self, desk: Desk, host: str) -> None:
        self._desk, self._host = desk, host
        self.fleet = _Nothing()

    def cannot_be_read(self) -> bool:
        return self._host in self._desk.unready

    async def read(self, *parts: object) -> None:
        await asyncio.Event().wait()

    async def look(self) -> None: ...

    def look_at_lead(self, now: float) -> None: ...


def _publisher(
    desk: Desk, around: Around, store: ZooKeeperMarkerStore, coordinator: ZooKeeperCoordinator, host: str
) -> Publisher:
    """The product's publisher with the parts that ownership depends on."""
    clock, nothing = around.clock, cast("Any", _Nothing())
    source: Any = _Source(desk.shards, around.log.end)
    log: Any = _Log(desk, host)

    async def look() -> Standing:
        await asyncio.sleep(0.01 * random.random())
        if host in desk.unready:
            raise SourceUnavailable("its server does not answer", hint="wait")
        return Standing("server-1")

    candidate = Candidate(desk.group, desk.copy, host, desk.ranks[host], 0.0, look)
    ownership = Ownership(coordinator, fenced=True, candidacy=Candidacy(coordinator, candidate, clock), clock=clock)
    process = ThisProcess(around.hello[0], host, clock.wall(), admin_address=f"{host}:1")
    known = KnownFlows(coordinator, Path("/", host, "flows.json"), clock)
    background, behind = BackgroundTasks(), set[str]()
    timeouts = Timeouts(desk.publishing.grace_period, desk.publishing.handler_timeout)
    around = replace(around, attached=AttachedSubscribers(timeouts.grace + timeouts.handler, clock))
    assigner = Assigner(store, nothing, cast("Any", around), timeouts, ownership, clock)
    registrar = Registrar(store, source, desk.log, known, clock)
    applications = Applications(desk.served, source, registrar, coordinator, assigner, behind, clock)
    around.attached.wanted.set()
    service = AttachService(
        around.attached, applications.config, nothing, nothing, None, desk.publishing, insecure=True
    )
    records = FlowRecords(desk.served.kind, store, assigner, nothing, background, behind, clock)
    states = FlowStates(process.identity, known, ownership, nothing, assigner.flows)
    refused_epochs = RefusedEpochs(records, assigner, ownership, background, clock)
    deliveries = Deliveries(assigner, records, nothing, nothing, nothing, refused_epochs, background)
    assigner.join(deliveries, EpochOpenings(records, states, nothing, nothing))
    return Publisher(
        served=desk.served,
        process=process,
        clock=clock,
        coordinator=coordinator,
        relay=None,
        ownership=ownership,
        log=log,
        pace=nothing,
        caps=nothing,
        scans=nothing,
        applications=applications,
        assigner=assigner,
        records=records,
        states=states,
        dead_letters=nothing,
        replays=nothing,
        backfills=nothing,
        losses=nothing,
        listener=cast("Any", VirtualListener(service, around.network, around.process)),
        housekeeping=Housekeeping(log, assigner, applications, nothing, nothing, (states,), clock),
        background=background,
        parking_room=nothing,
        peer_threads=nothing,
        letter_threads=nothing,
    )


async def _serve_once(desk: Desk, around: Around, host: str) -> None:
    """As :func:`publisher.daemon._serve` does."""
    process = around.process
    async with AsyncExitStack() as stack:
        coordinator = ZooKeeperCoordinator(desk.settings, clock=process.monotonic, now=process.wall)
        stack.push_async_callback(coordinator.stop)
        await coordinator.start()
        store = ZooKeeperMarkerStore(desk.settings, desk.log)
        await asyncio.to_thread(store.open)
        stack.push_async_callback(asyncio.to_thread, store.close)
        publisher = desk.serving[process] = _publisher(desk, around, store, coordinator, host)
        ownership, loop = publisher.ownership, asyncio.get_running_loop()
        store.guard(ownership.fence, lambda reason: loop.call_soon_threadsafe(ownership.distrust, reason))
        await publisher.run()


async def _life(desk: Desk, around: Around, host: str) -> None:
    """A publisher, and the monitor that starts it again when it ends with an error."""
    world, name = around.process.world, around.process.name
    while True:
        try:
            await _serve_once(desk, around, host)
        except* LogHandedOver as group:
            world.trace(f"{name} hands over: {group.exceptions[0]}")
        except* WormholeError as group:
            world.trace(f"{name} ends, and is started again: {group.exceptions[0]}")
            await asyncio.sleep(_BEFORE_RESTART_S)


async def _until_told(desk: Desk, around: Around, host: str) -> None:
    """Serve until the process is asked to end; then end as it does."""
    process = around.process
    told = desk.leaving[process] = asyncio.Event()
    life = asyncio.ensure_future(_life(desk, around, host))
    waits = asyncio.ensure_future(told.wait())
    await asyncio.wait((life, waits), return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        await life  # it never returns
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    process.world.after(0.0, process.kill)


def serve(desk: Desk, around: Around, host: str, loop: SimulatedLoop) -> None:
    """Begin the life of a publisher process in its loop."""

    def ended(task: asyncio.Future[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text = "".join(traceback.format_exception(error))
            around.process.world.violation(f"{around.process.name} ended: {error!r}\n{text}")

    def begin() -> None:
        task = loop.create_task(_until_told(desk, around, host), name="publisher")
        task.add_done_callback(ended)

    loop.call_soon(begin)
