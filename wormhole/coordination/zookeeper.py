"""Coordination through ZooKeeper, for a fleet: the tree of :mod:`wormhole.coordination.records` under one root."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError

from wormhole.config import (
    ApplicationConfig,
    Config,
    CoordinatorConfig,
    application_from_json,
    to_json,
    unknown_application,
)
from wormhole.coordination.entry import Entry, Taken
from wormhole.coordination.kazoo_edge import hosts_and_root
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.port import Contact, FlowRecord, PublisherInfo, Registration, SubscriberInfo
from wormhole.coordination.records import (
    Paths,
    flow_from_json,
    flow_to_json,
    publisher_from_json,
    publisher_to_json,
    subscriber_from_json,
    subscriber_to_json,
)
from wormhole.coordination.rules import all_loopback, check_subscriber, log_taken, publisher_to_tell, subscriber_taken
from wormhole.coordination.signal import Signal, watch
from wormhole.errors import ConfigError, CoordinationLost

__all__ = ["ZooKeeperCoordinator"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
Watcher = Callable[[object], None]

# ZooKeeper refuses larger nodes (jute.maxbuffer).
_LARGEST_NODE: Final = 1_000_000


class ZooKeeperCoordinator:
    """The ZooKeeper form of the port. ``settings.zookeeper`` names servers and root."""

    def __init__(self, settings: CoordinatorConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        hosts, root = hosts_and_root(settings)
        self._session = ZooKeeperSession(settings, clock)
        self._paths = Paths(root)
        self._on_loopback = all_loopback(hosts)
        self._entries: set[Entry] = set()
        self._stopped = False
        self.problems: dict[str, ConfigError] = {}
        """Nodes that hold no valid record, by path; each was left out (or its last good form kept) and logged once."""

    def __repr__(self) -> str:
        return f"<ZooKeeperCoordinator {self._session.settings.zookeeper} {self.contact.value}>"

    # --- the port ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._stopped = False
        await self._session.start()
        try:
            for path in (self._paths.applications, self._paths.datasets, self._paths.publishers):
                await self._ensure(path)
        except BaseException:
            await self._session.stop()
            raise

    async def stop(self) -> None:
        self._stopped = True
        for entry in tuple(self._entries):
            await entry.close()
        await self._session.stop()
        self._session.signal.notify()

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
        good: dict[str, ApplicationConfig] = {}

        async def read(changed: Watcher) -> Mapping[str, ApplicationConfig]:
            names = await self._children(self._paths.applications, changed)
            found = await self._each(names, lambda name: self._application(name, changed, good.get(name)))
            good.clear()
            good.update((settings.name, settings) for settings in found)
            return dict(good)

        return self._watch(read)

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        return self._watch(lambda changed: self._subscribers(application, changed))

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        where = self._paths.application(info.application)
        data = await self._get(where)
        if data is None:
            raise unknown_application(info.application, await self._children(self._paths.applications))
        settings = application_from_json(info.application, data.decode(errors="replace"), where)
        check_subscriber(info, settings, service_on_loopback=self._on_loopback)
        path = self._paths.subscriber(info.application, info.id)
        return await self._announce(path, subscriber_to_json(info), lambda by: subscriber_taken(info, by))

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        told = publisher_to_tell(info, service_on_loopback=self._on_loopback)
        if told != info:
            _log.info("admin address %s is on loopback: it is not told to other machines", info.address)
        path = self._paths.publisher(info.dataset, info.copy, info.log)
        return await self._announce(path, publisher_to_json(told), lambda by: log_taken(info, by))

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        places = [
            (dataset, copy, log)
            for dataset in await self._children(self._paths.publishers)
            for copy in await self._children(f"{self._paths.publishers}/{dataset}")
            for log in await self._children(f"{self._paths.publishers}/{dataset}/{copy}")
        ]

        async def one(place: tuple[str, str, str]) -> PublisherInfo | None:
            path = self._paths.publisher(*place)
            return self._parsed(path, await self._get(path), lambda data: publisher_from_json(*place, data, path))

        return tuple(await self._each(places, one))

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        found: list[SubscriberInfo] = []
        for application in await self._children(self._paths.applications):
            found += await self._subscribers(application)
        return tuple(found)

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        async def one(item: tuple[tuple[str, str], FlowRecord]) -> None:
            (application, shard), record = item
            await self._put(self._paths.flow(application, shard), flow_to_json(record))

        await self._each(records.items(), one)

    async def flows(self) -> Mapping[tuple[str, str], FlowRecord]:
        keys = [
            (application, shard)
            for application in await self._children(self._paths.applications)
            for shard in await self._children(self._paths.flows(application))
        ]

        async def one(key: tuple[str, str]) -> tuple[tuple[str, str], FlowRecord] | None:
            path = self._paths.flow(*key)
            record = self._parsed(path, await self._get(path), lambda data: flow_from_json(data, path))
            return (key, record) if record is not None else None

        return dict(await self._each(keys, one))

    # --- beyond the port -----------------------------------------------------------------------------------------

    async def publish(self, config: Config) -> None:
        """Write the datasets and applications of ``config`` into ZooKeeper. Applications that it lacks stay as they are.

        Raises :class:`~wormhole.errors.CoordinationLost`; repeating it is safe.
        """
        for dataset in config.datasets.values():
            await self._put(self._paths.dataset(dataset.name), to_json(dataset).encode())
        for application in config.applications.values():
            await self._put(self._paths.application(application.name), to_json(application).encode())

    # --- inside ------------------------------------------------------------------------------------------------

    async def _watch(self, read: Callable[[Watcher], Awaitable[_T]]) -> AsyncIterator[_T]:
        changed, contact = Signal(), self._session.signal

        def fired(
            _event: object,
        ) -> None:  # in kazoo's thread; the same object each time, so kazoo keeps it once per node
            self._session.post(changed.notify)

        last: list[_T] = []
        while not self._stopped:
            seen, contact_seen = changed.version, contact.version
            try:
                state = await read(fired)
            except CoordinationLost:
                await self._session.pause(contact_seen)
                continue
            if last != [state]:
                last = [state]
                yield state
            if changed.version == seen:
                await _first(changed.wait(seen), contact.wait(contact_seen))

    async def _application(
        self, name: str, changed: Watcher, last_good: ApplicationConfig | None
    ) -> ApplicationConfig | None:
        path = self._paths.application(name)
        data = await self._get(path, changed)
        settings = self._parsed(path, data, lambda raw: application_from_json(name, raw.decode(errors="replace"), path))
        # A slip of the pen in one application must not stop its flows: what was right before goes on.
        return last_good if settings is None and data is not None else settings

    async def _subscribers(self, application: str, changed: Watcher | None = None) -> tuple[SubscriberInfo, ...]:
        async def one(name: str) -> SubscriberInfo | None:
            path = self._paths.subscriber(application, name)
            data = await self._get(path)
            return self._parsed(path, data, lambda raw: subscriber_from_json(application, name, raw, path))

        return tuple(await self._each(await self._children(self._paths.subscribers(application), changed), one))

    def _parsed(self, path: str, data: bytes | None, parse: Callable[[bytes], _T]) -> _T | None:
        if data is None:
            self.problems.pop(path, None)
            return None
        try:
            parsed = parse(data)
        except ConfigError as error:
            if str(self.problems.get(path)) != str(error):
                _log.error("left out: %s", error)
            self.problems[path] = error
            return None
        self.problems.pop(path, None)
        return parsed

    async def _announce(self, path: str, data: bytes, taken: Callable[[str], ConfigError]) -> Registration:
        if any(entry.path == path for entry in self._entries):
            raise taken("registered in this process")
        entry = Entry(self._session, path, data, self._entries.discard)
        self._entries.add(entry)  # before the first await, so that a second one for the same node is refused
        try:
            await self._ensure(path.rpartition("/")[0])
            await entry.open()
        except BaseException as error:
            self._entries.discard(entry)
            if isinstance(error, Taken):
                raise taken(error.by) from None
            raise
        return entry

    async def _each(self, items: Iterable[Any], ask: Callable[[Any], Awaitable[_T | None]]) -> list[_T]:
        """``ask`` for every item at once (the session bounds how many are on their way); what is ``None`` is left out."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_caught(ask(item))) for item in items]
        results = [task.result() for task in tasks]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if result is not None and not isinstance(result, BaseException)]

    async def _children(self, path: str, changed: Watcher | None = None) -> list[str]:
        """Names below ``path``, sorted; none when there is no such node (``changed`` then fires when there is)."""
        try:
            names = await self._session.call(f"list {path}", lambda client: client.get_children_async(path, changed))
        except NoNodeError:
            if changed is None:
                return []
            there = await self._session.call(f"look for {path}", lambda client: client.exists_async(path, changed))
            return [] if there is None else await self._children(path, changed)
        return sorted(names)

    async def _get(self, path: str, changed: Watcher | None = None) -> bytes | None:
        try:
            data, _ = await self._session.call(f"read {path}", lambda client: client.get_async(path, changed))
        except NoNodeError:
            return None
        return bytes(data)

    async def _ensure(self, path: str) -> None:
        await self._session.call(f"make {path}", lambda client: client.ensure_path_async(path))

    async def _put(self, path: str, data: bytes) -> None:
        if len(data) > _LARGEST_NODE:
            raise ConfigError(f"{path}: {len(data)} bytes are too large for a ZooKeeper node")
        try:
            await self._session.call(f"write {path}", lambda client: client.set_async(path, data))
        except NoNodeError:
            try:
                await self._session.call(
                    f"create {path}", lambda client: client.create_async(path, data, makepath=True)
                )
            except NodeExistsError:  # somebody was faster; the last write stays
                await self._session.call(f"write {path}", lambda client: client.set_async(path, data))


async def _caught(question: Awaitable[_T]) -> _T | Exception:
    # Inside a TaskGroup an error would come out as a group; callers want the error itself.
    try:
        return await question
    except Exception as error:  # noqa: BLE001 - handed on by the caller
        return error


async def _first(*waits: Awaitable[None]) -> None:
    """Return when one of ``waits`` does; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
