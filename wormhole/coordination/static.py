"""Coordination without a service: who is there stands in the configuration file.

Every listed subscriber counts as live; the publisher dials it and tries again until it answers. What needs a service is
not pretended: another *process* that serves the same log is not seen here (the local marker store's lock refuses it),
and :meth:`StaticCoordinator.publishers` and :meth:`~StaticCoordinator.flows` know this process only. The file is read
once: a change takes a restart.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping

from wormhole.config import ApplicationConfig, Config, find_application
from wormhole.coordination.port import Contact, FlowRecord, PublisherInfo, Registration, SubscriberInfo
from wormhole.coordination.rules import check_subscriber, log_taken
from wormhole.coordination.signal import Signal, watch
from wormhole.errors import ConfigError

__all__ = ["StaticCoordinator"]


class _Entry:
    def __init__(self, withdraw: Callable[[], object]) -> None:
        self._withdraw = withdraw
        self.held = True

    async def close(self) -> None:
        self._withdraw()


class StaticCoordinator:
    """The static form of the port, from a configuration whose applications list their subscribers."""

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._applications = config.applications
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
        self._signal.notify()

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

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        listed = tuple(info for info in self._subscribers if info.application == application)
        return watch(self._signal, lambda: listed, self._is_stopped)

    def listed(self, application: str) -> Mapping[str, str]:
        """Id to address of the subscribers that the file lists for an application; empty when it does not know it."""
        return {info.id: info.address for info in self._subscribers if info.application == application}

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        """Check that the file lists this subscriber at this address; there is nobody to tell."""
        application = find_application(self._applications, info.application)
        check_subscriber(info, application, service_on_loopback=True)
        listed = application.subscribers.get(info.id)
        if listed != info.address:
            told = "does not list it" if listed is None else f"lists it at {listed}"
            hint = f'set [applications.{info.application}.subscribers] {info.id} = "{info.address}" in the publisher\'s file'
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

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        return tuple(info for _, info in sorted(self._publishers.items()))

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        return self._subscribers

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        self._flows.update(records)

    async def flows(self) -> Mapping[tuple[str, str], FlowRecord]:
        return dict(self._flows)

    def _is_stopped(self) -> bool:
        return self._stopped
