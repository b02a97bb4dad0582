"""Coordination without a service: who is there stands in the configuration file.

Every listed subscriber counts as live; the publisher dials it and tries again until it answers. What needs a service is
not pretended: another *process* that serves the same log is not seen here (the local marker store's lock refuses it;
another monitor of the host is refused by the lock of its state folder), and :meth:`StaticCoordinator.publishers`,
:meth:`~StaticCoordinator.monitors` and :meth:`~StaticCoordinator.flows` know this process only. The file is read once:
a change takes a restart. What is wanted of this host and the history stand in files:
:mod:`wormhole.coordination.host_files`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from typing import Final

from wormhole.config import ApplicationConfig, Config, DatasetConfig, find_application
from wormhole.coordination.change_signal import Signal, watch
from wormhole.coordination.host_files import HostFiles
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
from wormhole.coordination.rules import (
    check_subscriber,
    host_taken,
    log_taken,
    no_monitor,
    nowhere_to_publish,
    shortened,
)
from wormhole.model.errors import ConfigError
from wormhole.model.problem import Problem

__all__ = ["StaticCoordinator"]

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.5


class _Entry:
    def __init__(self, withdraw: Callable[[], object]) -> None:
        self._withdraw = withdraw
        self.held = True
        self.exclusive = False

    async def close(self) -> None:
        self._withdraw()


class StaticCoordinator:
    """The static form of the port, from a configuration whose applications list their subscribers."""

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._applications, self._datasets = config.applications, config.datasets
        self._files = HostFiles(config.publisher.state_dir)
        self._monitors: dict[str, MonitorInfo] = {}
        self._subscribers = tuple(
            SubscriberInfo(name, subscriber, address)
            for name, application in sorted(config.applications.items())
            for subscriber, address in sorted(application.subscribers.items())
        )
        self._clock = clock
        self._signal = Signal()
        self._stopped = False
        self._publishers: dict[tuple[str, str, str], PublisherInfo] = {}
        self._flows: dict[tuple[str, str], FlowRecord] = {}

    async def start(self) -> None:
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        self._publishers.clear()
        self._monitors.clear()
        self._signal.notify()

    async def warnings(self) -> tuple[Problem, ...]:
        return ()

    @property
    def contact(self) -> Contact:
        return Contact.LOST if self._stopped else Contact.CONNECTED

    def last_contact(self) -> float:
        return self._clock()

    def lease_s(self) -> float:
        return math.inf

    def watch_contact(self) -> AsyncIterator[Contact]:
        return watch(self._signal, lambda: self.contact, self._is_stopped)

    def watch_applications(self) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        return watch(self._signal, lambda: self._applications, self._is_stopped)

    def watch_datasets(self) -> AsyncIterator[Mapping[str, DatasetConfig]]:
        return watch(self._signal, lambda: self._datasets, self._is_stopped)

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        listed = tuple(info for info in self._subscribers if info.application == application)
        return watch(self._signal, lambda: listed, self._is_stopped)

    def listed(self, application: str) -> Mapping[str, str]:
        """Id to address of the subscribers that the file lists for an application; empty when it does not know it."""
        return {info.id: info.address for info in self._subscribers if info.application == application}

    async def application(self, name: str) -> ApplicationConfig:
        return find_application(self._applications, name)

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        """Check that the file lists this subscriber at this address; there is nobody to tell."""
        application = await self.application(info.application)
        check_subscriber(info, application, service_on_loopback=True)
        listed = application.subscribers.get(info.id)
        if listed != info.address:
            told = "does not list it" if listed is None else f"lists it at {listed}"
            place = f"[applications.{info.application}.subscribers]"
            hint = f'set {place} {info.id} = "{info.address}" in the publisher\'s file'
            if listed is None and application.subscribers:
                known = ", ".join(sorted(application.subscribers))
                hint = f"give it a listed name as `id` (WORMHOLE_ID): {known}; or {hint}"
            elif listed is not None:
                hint = f'listen = "{listed}" (or advertise that address); or {hint}'
            raise ConfigError(
                f"subscriber {info.id!r} of application {info.application} is at {info.address}, but the static "
                f"configuration {told}, so no publisher would dial it there",
                hint=hint,
            )
        return _Entry(lambda: None)

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        key = (info.dataset, info.copy, info.log)
        other = self._publishers.setdefault(key, info)
        if other is not info:
            raise log_taken(info, f"process {other.pid} on {other.host}")
        return _Entry(lambda: self._publishers.pop(key) if self._publishers.get(key) is info else None)

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        return {}

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        return tuple(info for _, info in sorted(self._publishers.items()))

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        return self._subscribers

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        self._flows.update(records)

    async def flows(self) -> Mapping[tuple[str, str], FlowRecord]:
        return dict(self._flows)

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        return None

    async def configuration(self) -> StoredConfig:
        return StoredConfig(self._datasets, self._applications, 0)

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        raise nowhere_to_publish()

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        other = self._monitors.get(info.host)
        if other is not None:
            raise host_taken(info, f"process {other.pid}")
        self._monitors[info.host] = info
        return _Entry(lambda: self._monitors.pop(info.host, None))

    async def update_monitor(self, info: MonitorInfo) -> None:
        if info.host not in self._monitors:
            raise no_monitor(info)
        self._monitors[info.host] = info

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        return tuple(info for _, info in sorted(self._monitors.items()))

    async def watch_host(self, host: str) -> AsyncGenerator[HostRequest]:
        last: HostRequest | None = None
        told = ""
        while not self._stopped:
            seen = self._signal.version
            try:
                request = await asyncio.to_thread(self._files.request, host)
                told = ""
            except ConfigError as error:  # what was right before goes on
                request = last or HostRequest()
                if str(error) != told:
                    told = str(error)
                    _log.error("left out: %s", error)
            if request != last:
                last = request
                yield request
            # Another process may write the file, and says so to nobody.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._signal.wait(seen)

    async def set_host(self, host: str, request: HostRequest) -> None:
        await asyncio.to_thread(self._files.set_request, host, request)
        self._signal.notify()

    async def record(self, entry: HistoryEntry) -> None:
        await asyncio.to_thread(self._files.record, shortened(entry))

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        return await asyncio.to_thread(self._files.history, limit)

    def _is_stopped(self) -> bool:
        return self._stopped
