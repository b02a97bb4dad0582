"""Follows which applications are configured, and gives each application a flow for every shard of the log.

A problem of one application is reported and tried again. It never affects other applications.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from publisher.flows.assigner import Assigner
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.known_flows import FormerHolder
from publisher.flows.marker_target import by_start, located
from publisher.flows.part_reports import Row, warn
from publisher.flows.registrar import Registrar
from publisher.push.flow import PublisherFlow
from wormhole.config import ApplicationConfig, DatasetConfig, PublisherConfig
from wormhole.config.application_filter import application_filter, mask_key_exposure, read_mask_key
from wormhole.config.datastores import capabilities_of
from wormhole.coordination.port import Coordinator
from wormhole.filters import Filter, MaskKey
from wormhole.formats import ValueFormats
from wormhole.host.clock import Clock
from wormhole.host.log_batch import BatchedLog
from wormhole.metrics import catalogue as c
from wormhole.model.errors import WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.log_source import LogSource
from wormhole.ports.marker_store import FlowKey, start_key
from wormhole.wire.problems import problem_from
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Applications", "Served"]

_log = logging.getLogger(__name__)

_RETRY_S = 2.0


class Unserved(NamedTuple):
    """An application that should be served with ``config`` and is not. ``why``: the reason. ``retry``: whether the
    reason may disappear by itself."""

    config: ApplicationConfig
    why: Problem
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Served:
    """The log that is served, and its settings.

    ``kind``: the source's URL scheme; ``trust`` ``None``: without TLS; ``formats``: the formats of the dataset's
    values."""

    dataset: DatasetConfig
    copy: str
    log: str
    kind: str
    settings: PublisherConfig
    trust: Trust | None
    formats: ValueFormats = field(default_factory=ValueFormats)


class Applications:
    """See the module.

    ``known``: set once the configuration was read. ``unserved``: the applications that are configured and cannot be
    served.

    ``behind`` always contains the applications that have shards without a flow. Their stored datamarkers must not pass
    the first update of such a shard, because a restart would then begin the shard after its first updates.
    ``registering``: a lock that is held while the beginnings of new flows are stored. No log is released meanwhile.
    """

    def __init__(
        self,
        served: Served,
        source: LogSource,
        registrar: Registrar,
        coordinator: Coordinator,
        assigner: Assigner,
        behind: set[str],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.known = asyncio.Event()
        self.unserved: dict[str, Unserved] = {}
        self.registering = asyncio.Lock()
        self._served = served
        self._source = source
        self._registrar = registrar
        self._coordinator = coordinator
        self._assigner = assigner
        self._behind = behind
        self._mask_key: MaskKey | None = None  # read once: another key would change every masked value
        self._shards: set[str] = set()
        self._applications: dict[str, tuple[ApplicationConfig, Filter]] = {}
        self._configured: frozenset[str] = frozenset()  # all configured applications, also of other logs
        self._absent: dict[str, LogPosition] | None = None  # places of unconfigured applications; None: not read
        self._configuring = asyncio.Lock()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._background = BackgroundTasks()
        self._said = BatchedLog(lambda line: _log.info("%s", line))

    def __contains__(self, name: str) -> bool:
        """Whether the application is configured and its settings are right."""
        return name in self._applications

    def config(self, name: str) -> ApplicationConfig | None:
        """The configuration of an application that is served; ``None``: it is not."""
        known = self._applications.get(name)
        return None if known is None else known[0]

    def wanted(self, name: str) -> Filter | None:
        """The filter of an application that is served; ``None``: it is not."""
        known = self._applications.get(name)
        return None if known is None else known[1]

    @property
    def idle(self) -> bool:
        """Whether no task is under way except the watches of subscribers."""
        return len(self._background) <= len(self._watches)

    async def stop(self) -> None:
        """End all work that is under way."""
        self._said.flush()
        await self._background.stop()

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        async for applications in self._coordinator.watch_applications():
            dataset, copy = self._served.dataset, self._served.copy
            of_dataset = {name: config for name, config in applications.items() if config.dataset == dataset.name}
            mine = {name: config for name, config in of_dataset.items() if dataset.serves(copy, config.from_copy)}
            nobodys = {name: one for name, one in of_dataset.items() if dataset.failover_of(one.from_copy) is not None}
            async with self._configuring:
                for name in set(self.unserved) - set(mine) - set(nobodys):
                    del self.unserved[name]
                for name, config in nobodys.items():
                    self._refuse(name, config)
                for name, config in mine.items():
                    await self._try_to_serve(name, config)
                for name in set(self._applications) - set(mine):
                    self._forget(name)
            self._configured, self._absent = frozenset(applications), None
            self.known.set()

    def _refuse(self, name: str, config: ApplicationConfig) -> None:
        """Report an application that no publisher serves: its configuration was written without the checks of `config
        apply`."""
        why = Problem(
            f"it names the copy {config.from_copy}, which serves the dataset in turn with others",
            "take `copy` out of it: whichever copy serves the log serves the application",
            code="application-unserved",
        )
        refused = Unserved(config, why, retry=False)
        if self.unserved.get(name) != refused:
            _log.error("application %s is not served as configured: %s", name, why)
        self.unserved[name] = refused

    async def try_again(self) -> None:
        """Try again to serve the applications that could not be served."""
        for name in tuple(self.unserved):
            async with self._configuring:
                unserved = self.unserved.get(name)
                if unserved is not None and unserved.retry:  # it may have been served, or removed, while this waited
                    await self._try_to_serve(name, unserved.config)

    async def _try_to_serve(self, name: str, config: ApplicationConfig) -> None:
        """Serve the application as configured. Its problem is reported and tried again."""
        try:
            await self._configure(name, config)
        except WormholeError as error:
            if name not in self.unserved or self.unserved[name].config != config:
                _log.error("application %s is not served as configured: %s", name, error)
            self.unserved[name] = Unserved(config, error.problem)
        else:
            self.unserved.pop(name, None)

    async def _configure(self, name: str, config: ApplicationConfig) -> None:
        known = self._applications.get(name)
        if known is not None and known[0] == config and name not in self.unserved:
            return
        wanted = application_filter(config, self._served.formats)
        if wanted.projection.hashes:
            if self._mask_key is None:
                path = self._served.settings.mask_key_file
                self._mask_key = await asyncio.to_thread(read_mask_key, path)
                if path is not None and (exposed := await asyncio.to_thread(mask_key_exposure, path)):
                    _log.warning("%s", exposed)
            wanted = application_filter(config, self._served.formats, self._mask_key)
        wanted.check(capabilities_of(self._served.kind))
        self._applications[name] = (config, wanted)
        self._assigner.application(config)
        if known is None:
            self._behind.add(name)
        if name not in self._watches:  # its subscribers are dialled while its flows are looked up
            self._watches[name] = self._background.spawn(self._watch_subscribers(name), f"subscribers-{name}")
        self.see(await asyncio.to_thread(self._source.shards), but_for=name)
        await self._register(name, config, wanted)
        for key, flow in self._assigner.flows.items():
            halts, parks = config.on_bad_value == "halt", config.on_failure == "park"
            if key[0] == name and (
                flow.filter.hash,
                flow.halts_on_bad_value,
                flow.parks,
                flow.marker_interval,
            ) != (wanted.hash, halts, parks, config.marker_interval):
                # All take effect in the next epoch, which begins at a transaction's end.
                cause = (
                    "its filter changed"
                    if flow.filter.hash != wanted.hash
                    else "on_bad_value, on_failure or marker_interval changed"
                )
                flow.configure(wanted, halts_on_bad_value=halts, parks=parks, marker_interval=config.marker_interval)
                self._assigner.recall(flow, cause)

    def _forget(self, name: str) -> None:
        """Stop serving an application that is no longer configured. Its subscribers are disconnected; markers stay."""
        del self._applications[name]
        self.unserved.pop(name, None)
        self._behind.discard(name)
        watch = self._watches.pop(name, None)
        if watch is not None:
            watch.cancel()
        self._assigner.forgotten(name)
        for key in [key for key in self._assigner.flows if key[0] == name]:
            flow = self._assigner.flows.pop(key)
            self._assigner.recall(flow, "the application is no longer configured")

    async def _watch_subscribers(self, application: str) -> None:
        while True:
            try:
                async for infos in self._coordinator.watch_subscribers(application):
                    self._assigner.subscribers(application, infos)
                return
            except WormholeError as error:
                _log.error("who subscribes to %s cannot be seen, a retry follows: %s", application, error)
                await self._clock.sleep(_RETRY_S)

    def see(self, shards: Collection[str], but_for: str = "") -> None:
        """Note the log's present shards. Every application gets flows for the new shards, except ``but_for``, which is
        being registered already."""
        born = set(shards) - self._shards
        if born:
            self._shards |= born
            self._behind.update(self._applications)
            for shard in sorted(born):
                self._said.add("shards appeared in the log", shard)
            for name, (config, wanted) in self._applications.items():
                if name != but_for:
                    self._background.spawn(self._add_shards(name, config, wanted))

    async def _add_shards(self, name: str, config: ApplicationConfig, wanted: Filter) -> None:
        try:
            await self._register(name, config, wanted)
        except WormholeError as error:
            if name in self._applications:  # the next try registers the missing flows
                self.unserved[name] = Unserved(self._applications[name][0], error.problem)
            raise

    async def _register(self, name: str, config: ApplicationConfig, wanted: Filter) -> None:
        """Make a flow for each shard that has none."""
        async with self.registering:
            flows, shards = self._assigner.flows, frozenset(self._shards)
            missing = {shard for shard in shards if (name, shard) not in flows}
            found = await self._registrar.register(name, config.start, missing, shards, wanted.hash)
            if name not in self._applications:
                return  # no longer configured
            for begin in found:
                flow = PublisherFlow(name, begin.shard, wanted, begin.record.marker, begin.sent_until)
                halts, parks = config.on_bad_value == "halt", config.on_failure == "park"
                flow.configure(wanted, halts_on_bad_value=halts, parks=parks, marker_interval=config.marker_interval)
                flow.registered(begin.record)
                if begin.holder is not None:
                    self._wait_for(flow, begin.holder)
                flows[flow.key] = flow
            if shards == self._shards:
                self._behind.discard(name)
        self._assigner.changed()

    def _wait_for(self, flow: PublisherFlow, holder: FormerHolder) -> None:
        """Make the flow wait for a handler that may still run for the last owner of the log, at ``holder``.

        If no other publisher can own the log, there is no wait: the last owner was an earlier process of this
        publisher, which has ended.
        """
        settings, lease_s = self._served.settings, self._coordinator.lease_s()
        if settings.markers == "zookeeper" and lease_s != math.inf:
            until = holder.seen_at + lease_s + settings.handler_timeout
            flow.holding.was_at(holder.subscriber, None, until, process=holder.process)

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """See :class:`~publisher.flows.part_reports.Described`. The log is described before."""
        unreadable = problem_from(message.unreadable)
        for name, unserved in sorted(self.unserved.items()):
            if unserved.why != unreadable:  # an unreadable log is reported once, for all applications
                text = f"application {name} is not served as configured: {unserved.why.text}"
                warn(message, replace(unserved.why, text=text))

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        yield c.PUBLISHER_UNSERVED, len(self.unserved)

    def start_key(self, name: str) -> FlowKey:
        """The key of the record with the application's start."""
        return start_key(name, self._served.log)

    async def beginning(self, name: str) -> tuple[str, Datamarker]:
        """The application's configured start, and the present place of that start in the log.

        Raises ``KeyError`` for an application that is not configured, and the source's errors."""
        start = self._applications[name][0].start
        return start, await located(self._source, by_start(self._source, start, self._clock.wall()))

    def forgotten(self) -> None:
        """Note that a record of an unconfigured application was deleted. The log that unconfigured applications need is
        determined again."""
        self._absent = None

    def unused_starts(self) -> list[Datamarker]:
        """The starts of the applications that have no flow yet."""
        unused = self._applications.keys() - {application for application, _ in self._assigner.flows}
        return [start for name, start in self._registrar.starts.items() if name in unused]

    async def needed(self) -> list[LogPosition]:
        """The places in the log that unserved flows need. Called with ``registering`` held."""
        places = [start.read_from for start in self.unused_starts()]
        for name in tuple(self.unserved):
            places += await self._registrar.needed(name)
        return [*places, *await self._needed_by_absent()]

    async def _needed_by_absent(self) -> Iterable[LogPosition]:
        """The places that unconfigured applications need, because such an application may be configured again. The disk
        budget bounds the log that is kept for it."""
        if self._absent is None:
            configured = self._configured
            absent = await self._registrar.needed_without(configured)
            for name, place in absent.items():
                _log.warning(
                    "log from %s on is kept for application %s, which has datamarkers here and is not "
                    "configured. Next: configure it, "
                    "or `wormholectl markers forget` its flows",
                    place,
                    name,
                )
            if configured is not self._configured:
                return absent.values()  # incomplete: read again at the next release
            self._absent = absent
        return self._absent.values()
