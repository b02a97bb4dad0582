"""A virtual publisher process: the product's life of a publisher, its ownership, assigner, marker writer and
registration, without log, caravans and gRPC.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, cast

from publisher.flows.applications import Applications, Served
from publisher.flows.assigner import Assigner, Timeouts
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.housekeeping import Housekeeping
from publisher.flows.known_flows import KnownFlows
from publisher.flows.marker_writer import MarkerWriter
from publisher.flows.ownership import LogHandedOver, Ownership
from publisher.flows.refused_epochs import RefusedEpochs
from publisher.flows.registrar import Registrar
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stream import StreamEvents
from publisher.stores.markers import ZooKeeperMarkerStore
from tests.simulation.loop import SimulatedLoop
from tests.simulation.stream import Around, SimulatedStream, place
from tests.simulation.world import Process
from wormhole.config import CoordinatorConfig, DatasetConfig, PublisherConfig
from wormhole.coordination.port import LogGroup
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.metrics import Histogram
from wormhole.model.errors import SourceUnavailable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
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


class _LogWatch:
    """What is known of the log's end."""

    def __init__(self, desk: Desk, host: str) -> None:
        self._desk, self._host = desk, host

    @property
    def end_unknown(self) -> str:
        return "its server does not answer" if self._host in self._desk.unready else ""


class _Nothing:
    """Takes the place of parts that have nothing to do: every method does nothing and gives nothing."""

    lead: Any = None
    trouble: Any = None

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


class _Housekeeping(Housekeeping):
    """The product's, without log and disk."""

    async def release(self) -> None: ...

    async def _look_at_log(self) -> None: ...


class _Travel:
    """Takes the place of a caravan's flow: only its place is asked for."""

    def __init__(self, at: LogPosition) -> None:
        self.place = at


class _Publisher(Publisher):
    """The product's publisher with the parts that ownership depends on."""

    def __init__(
        self, desk: Desk, around: Around, store: ZooKeeperMarkerStore, coordinator: ZooKeeperCoordinator, host: str
    ) -> None:
        clock = around.clock
        nothing: Any = _Nothing()
        self.clock = clock
        self.served = desk.served
        self.store = store
        self.coordinator = coordinator
        self.identity = around.hello[0]
        self.started = clock.wall()
        self.host, self.admin_address = host, f"{host}:1"
        self.fleet = self.caps = self.scans = self.backfills = self.replays = nothing
        self.dead_letters = self.delivery_counter = self.peer_threads = self.letter_threads = nothing
        self.ack_ages: dict[str, Histogram] = {}
        source: Any = _Source(desk.shards, around.log.end)
        self.source = source
        self.parking_room = nothing
        self.log_watch = cast("Any", _LogWatch(desk, host))

        async def look() -> Standing:
            await asyncio.sleep(0.01 * random.random())
            if host in desk.unready:
                raise SourceUnavailable("its server does not answer", hint="wait")
            return Standing("server-1")

        candidate = Candidate(desk.group, desk.copy, host, desk.ranks[host], 0.0, look)
        self.ownership = Ownership(
            coordinator, fenced=True, candidacy=Candidacy(coordinator, candidate, clock), clock=clock
        )
        behind: set[str] = set()
        self.markers = MarkerWriter(store, self._stored, self._refused, behind.__contains__, clock)
        events = StreamEvents(
            ready=lambda stream: self.assigner.changed(),
            opened=self._opened,
            parking=_nothing,
            acked=self._acked,
            released=self._released,
            undone=_nothing,
            failed=self._failed,
            decided=_nothing,
            verified=_nothing,
            ended=self._ended,
        )
        self.assigner = Assigner(
            store,
            nothing,
            cast("Any", around),
            events,
            Timeouts(desk.publishing.grace_period, desk.publishing.handler_timeout),
            self.ownership,
            self.markers.flush,
            self.record,
            self._read,
            self._prepare,
            clock,
        )
        self.known = KnownFlows(coordinator, Path("/", host, "flows.json"), clock)
        registrar = Registrar(store, source, desk.log, self.known, clock)
        self.applications = Applications(desk.served, source, registrar, coordinator, self.assigner, behind, clock)
        self._background = BackgroundTasks()
        self._refused_epochs = RefusedEpochs(
            store, self.assigner, self.ownership, self._background, self.control, clock
        )
        self._controlling = asyncio.Lock()
        self._recording = asyncio.Lock()
        self.housekeeping = _Housekeeping(
            source,
            nothing,
            self.assigner,
            self.applications,
            self.ownership,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            lambda: self.record(self.assigner.flows.values()),
            clock,
        )

    async def _keep_fleet(self) -> None:
        await asyncio.Event().wait()

    async def _measure_loop_delay(self) -> None:
        await asyncio.Event().wait()

    def _begin(self, stream: Any, flow: PublisherFlow) -> None:
        flow.begin(cast("Any", _Travel(flow.delivery.marker.order)))
        cast("SimulatedStream", stream).push_soon()


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
        publisher = _Publisher(desk, around, store, coordinator, host)
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
