"""Coordination through ZooKeeper, for a fleet: the tree of :mod:`wormhole.coordination.records` under one root."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from wormhole.config import (
    ApplicationConfig,
    CoordinatorConfig,
    DatasetConfig,
    application_from_json,
    unknown_application,
)
from wormhole.config.datastores import schemes
from wormhole.coordination.change_signal import watch
from wormhole.coordination.config_store import ConfigStore
from wormhole.coordination.credentials import readable_by_others
from wormhole.coordination.ephemeral_node import EphemeralNode, NodeTaken
from wormhole.coordination.flow_records import WrittenRecords
from wormhole.coordination.kazoo_client import hosts_and_root
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.nodes import Nodes, Watcher
from wormhole.coordination.port import (
    ConfigChange,
    Contact,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    MonitorInfo,
    PublisherInfo,
    Registration,
    StoredConfig,
    SubscriberInfo,
)
from wormhole.coordination.records import (
    Paths,
    flow_from_json,
    host_from_json,
    monitor_from_json,
    monitor_to_json,
    publisher_from_json,
    publisher_to_json,
    record_to_json,
    subscriber_from_json,
    subscriber_to_json,
)
from wormhole.coordination.rules import (
    all_loopback,
    as_seen_by_others,
    check_subscriber,
    host_taken,
    is_predecessor,
    log_taken,
    no_monitor,
    page_address,
    subscriber_taken,
)
from wormhole.model.errors import ConfigError, WormholeError
from wormhole.model.problem import Problem

__all__ = ["ZooKeeperCoordinator"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ZooKeeperCoordinator:
    """The ZooKeeper form of the port. ``settings.zookeeper`` names servers and root."""

    def __init__(self, settings: CoordinatorConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        hosts, root = hosts_and_root(settings)
        self._session = ZooKeeperSession(settings, clock)
        self._paths = Paths(root)
        self._on_loopback = all_loopback(hosts)
        self._nodes = Nodes(self._session)
        self._config = ConfigStore(self._session, self._nodes, self._paths)
        self._entries: set[EphemeralNode] = set()
        self._written = WrittenRecords()
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ZooKeeperCoordinator {self._session.settings.zookeeper} {self.contact.value}>"

    # --- the port ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._stopped = False
        await asyncio.to_thread(schemes)  # what is stored is parsed on the loop, and asks which packages are installed
        await self._session.start()
        try:
            if not self._session.has_identities:
                for path in self._paths.top:
                    await self._nodes.ensure(path)
        except BaseException:
            await self._session.stop()
            raise

    async def stop(self) -> None:
        self._stopped = True
        for entry in tuple(self._entries):
            await entry.close()
        await self._session.stop()
        self._session.signal.notify()

    async def warnings(self) -> tuple[Problem, ...]:
        settings, found = self._session.settings, []
        parents = (self._paths.applications, self._paths.datasets, self._paths.publishers)
        below = [f"{path}/{name}" for path in parents[:2] for name in await self._nodes.children(path)]
        if any([await self._nodes.open_to_all(path) for path in (*parents, *below)]):
            unsafe = (
                f"everybody who reaches ZooKeeper {settings.zookeeper} can read and change configuration, addresses "
                "and datamarkers"
            )
            hint = "`wormholectl zookeeper credentials --to FOLDER`, see docs/zookeeper.md"
            found.append(Problem(unsafe, hint))
        file = settings.auth_file
        if file is not None and await asyncio.to_thread(readable_by_others, file):
            found.append(Problem(f"other users can read the credentials in {file}", f"chmod 600 {file}"))
        return tuple(found)

    @property
    def contact(self) -> Contact:
        return self._session.contact

    def last_contact(self) -> float:
        return self._session.last_contact()

    def lease_s(self) -> float:
        return self._session.timeout_s() * 2 / 3

    def watch_contact(self) -> AsyncIterator[Contact]:
        return watch(self._session.signal, lambda: self._session.contact, lambda: self._stopped)

    def watch_applications(self) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        return self._watch(self._config.reader_of_applications())

    def watch_datasets(self) -> AsyncIterator[Mapping[str, DatasetConfig]]:
        return self._watch(self._config.reader_of_datasets())

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        return self._watch(lambda changed: self._subscribers(application, changed))

    async def application(self, name: str) -> ApplicationConfig:
        where = self._paths.application(name)
        data = await self._nodes.get(where)
        if not data:
            known: list[str] = []
            with contextlib.suppress(ConfigError):  # a subscriber may not list them
                known = await self._nodes.children(self._paths.applications)
            raise unknown_application(name, known)
        return application_from_json(name, data.decode(errors="replace"), where)

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        settings = await self.application(info.application)
        check_subscriber(info, settings, service_on_loopback=self._on_loopback)
        path = self._paths.subscriber(info.application, info.id)
        data = subscriber_to_json(info)
        return await self._announce(path, data, lambda by: subscriber_taken(info, by), data.__eq__)

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        shown = as_seen_by_others(info, info.address, service_on_loopback=self._on_loopback)
        if shown != info:
            _log.info("admin address %s is on loopback: it is not published to other machines", info.address)
        place = (info.dataset, info.copy, info.log)
        path = self._paths.publisher(*place)

        def left_over(data: bytes) -> bool:
            return is_predecessor(publisher_from_json(*place, data, path), info)

        return await self._announce(path, publisher_to_json(shown), lambda by: log_taken(info, by), left_over)

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        places = [
            (dataset, copy, log)
            for dataset in await self._nodes.children(self._paths.publishers)
            for copy in await self._nodes.children(f"{self._paths.publishers}/{dataset}")
            for log in await self._nodes.children(f"{self._paths.publishers}/{dataset}/{copy}")
        ]

        async def one(place: tuple[str, str, str]) -> PublisherInfo | None:
            path = self._paths.publisher(*place)
            return await self._nodes.record(path, lambda data: publisher_from_json(*place, data, path))

        return tuple(await self._nodes.each(places, one))

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        found: list[SubscriberInfo] = []
        for application in await self._nodes.children(self._paths.applications):
            found += await self._subscribers(application)
        return tuple(found)

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        written, contact = self._written, self._session.signal.version

        due = written.due(records, contact)
        for flow in due:
            written.writes(flow)
        await self._nodes.put_all({self._paths.flow(*flow): record_to_json(records[flow]) for flow in due})
        for flow in due:
            written.wrote(flow, records[flow], contact)

    async def flows(self) -> Mapping[tuple[str, str], FlowRecord]:
        keys = [
            (application, shard)
            for application in await self._nodes.children(self._paths.applications)
            for shard in await self._nodes.children(self._paths.flows(application))
        ]
        return await self._flow_records(keys)

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        await self._nodes.sync()
        found = await self._flow_records([(application, shard) for shard in shards])
        return {shard: record.epoch for (_, shard), record in found.items()}

    async def configuration(self) -> StoredConfig:
        return await self._config.configuration()

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        return await self._config.publish(change, entry)

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        path = self._paths.monitor(info.host)

        def left_over(data: bytes) -> bool:
            found = monitor_from_json(info.host, data, path)
            return (found.pid, found.started) == (info.pid, info.started)

        return await self._announce(path, self._monitor_data(info), lambda by: host_taken(info, by), left_over)

    async def update_monitor(self, info: MonitorInfo) -> None:
        path = self._paths.monitor(info.host)
        entry = next((entry for entry in self._entries if entry.path == path), None)
        if entry is None:
            raise no_monitor(info)
        entry.update(self._monitor_data(info))

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        async def one(host: str) -> MonitorInfo | None:
            path = self._paths.monitor(host)
            return await self._nodes.record(path, lambda data: monitor_from_json(host, data, path))

        return tuple(await self._nodes.each(await self._nodes.children(self._paths.hosts), one))

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        path, good = self._paths.host(host), [HostRequest()]

        async def read(changed: Watcher) -> HostRequest:
            data = await self._nodes.get(path, changed)
            request = self._nodes.parsed(path, data, lambda raw: host_from_json(raw, path))
            if request is not None or data is None:
                good[0] = request or HostRequest()
            return good[0]

        return self._watch(read)

    async def set_host(self, host: str, request: HostRequest) -> None:
        await self._nodes.put(self._paths.host(host), record_to_json(request))

    async def record(self, entry: HistoryEntry) -> None:
        await self._config.record(entry)

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        return await self._config.history(limit)

    # --- inside ------------------------------------------------------------------------------------------------

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        """Nodes that hold no valid record, by path; each was left out (or its last good form kept) and logged once."""
        return self._nodes.problems

    def _watch(self, read: Callable[[Watcher], Awaitable[_T]]) -> AsyncIterator[_T]:
        return self._nodes.watch(read, lambda: self._stopped)

    def _monitor_data(self, info: MonitorInfo) -> bytes:
        address = info.address and page_address(info.address)
        return monitor_to_json(as_seen_by_others(info, address, service_on_loopback=self._on_loopback))

    async def _flow_records(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FlowRecord]:
        paths = {key: self._paths.flow(*key) for key in keys}
        found = {}
        for (key, path), data in zip(paths.items(), await self._nodes.get_all(list(paths.values())), strict=True):
            record = self._nodes.parsed(path, data, partial(flow_from_json, where=path))
            if record is not None:
                found[key] = record
        return found

    async def _subscribers(self, application: str, changed: Watcher | None = None) -> tuple[SubscriberInfo, ...]:
        async def one(name: str) -> SubscriberInfo | None:
            path = self._paths.subscriber(application, name)
            return await self._nodes.record(path, lambda data: subscriber_from_json(application, name, data, path))

        listed = await self._nodes.children(self._paths.subscribers(application), changed)
        return tuple(await self._nodes.each(listed, one))

    async def _announce(
        self, path: str, data: bytes, taken: Callable[[str], WormholeError], left_over: Callable[[bytes], bool]
    ) -> Registration:
        if any(entry.path == path for entry in self._entries):
            raise taken("registered in this process")
        entry = EphemeralNode(self._session, path, data, self._entries.discard, left_over)
        self._entries.add(entry)  # before the first await, so that a second one for the same node is refused
        try:
            await self._nodes.ensure(path.rpartition("/")[0])
            await entry.open()
        except BaseException as error:
            self._entries.discard(entry)
            if isinstance(error, NodeTaken):
                raise taken(error.by) from None
            raise
        return entry
