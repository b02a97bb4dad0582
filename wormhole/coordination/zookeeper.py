"""Coordination through ZooKeeper, for a fleet: the tree of :mod:`wormhole.coordination.records` under one root."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from kazoo.exceptions import BadVersionError

from wormhole.config import (
    ApplicationConfig,
    CoordinatorConfig,
    DatasetConfig,
    application_from_json,
    unknown_application,
)
from wormhole.config.datastores import schemes
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.change_signal import watch
from wormhole.coordination.config_store import ConfigStore
from wormhole.coordination.credentials import readable_by_others
from wormhole.coordination.ephemeral_node import EphemeralNode, NodeTaken
from wormhole.coordination.flow_records import WrittenRecords
from wormhole.coordination.kazoo_client import hosts_and_root
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.log_claim import ZooKeeperClaim, ensure_below_logs, withdraw
from wormhole.coordination.log_owners import LogOwnersReader
from wormhole.coordination.nodes import Nodes, Watcher
from wormhole.coordination.port import (
    AttachPoint,
    CandidateEntry,
    CandidateInfo,
    ConfigChange,
    Contact,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    LogClaim,
    LogGroup,
    LogOwners,
    MonitorInfo,
    MoveRequest,
    PublisherInfo,
    Registration,
    StoredConfig,
    SubscriberInfo,
)
from wormhole.coordination.records import (
    Paths,
    attach_from_json,
    attach_to_json,
    candidate_from_json,
    candidate_to_json,
    flow_from_json,
    flow_to_json,
    host_from_json,
    host_to_json,
    monitor_from_json,
    monitor_to_json,
    move_to_json,
    publisher_from_json,
    publisher_to_json,
    subscriber_from_json,
    subscriber_to_json,
    tokens_from_json,
    tokens_to_json,
)
from wormhole.coordination.rules import (
    all_loopback,
    as_seen_by_others,
    attach_taken,
    candidate_taken,
    check_subscriber,
    host_taken,
    is_predecessor,
    log_taken,
    no_monitor,
    page_address,
    subscriber_taken,
    tokens_changed,
)
from wormhole.host.tls import is_loopback
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError
from wormhole.model.problem import Problem

__all__ = ["ZooKeeperCoordinator"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MADE_AGAIN: Final = "delete it: a process that runs makes its own again"
_WRITTEN_AGAIN: Final = "nothing: the publisher that serves the flow writes it again"


class ZooKeeperCoordinator:
    """The ZooKeeper form of the port. ``settings.zookeeper`` names servers and root.

    ``clock``: the monotonic one; ``now``: seconds since 1970.
    """

    def __init__(
        self,
        settings: CoordinatorConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        hosts, root = hosts_and_root(settings)
        self._now = now
        self._session = ZooKeeperSession(settings, clock)
        self._paths = Paths(root)
        self._on_loopback = all_loopback(hosts)
        self._nodes = Nodes(self._session)
        self._config = ConfigStore(self._nodes, self._paths)
        self._logs = LogOwnersReader(self._nodes, self._paths, self._given_up)
        self._entries: set[EphemeralNode] = set()
        self._owning: set[LogGroup] = set()
        self._claims: dict[LogGroup, ZooKeeperClaim] = {}
        """The last claim of each log that was owned here. Claims that ended are kept too, so that no later write
        passes.
        """
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._written = WrittenRecords()
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ZooKeeperCoordinator {self._session.settings.zookeeper} {self.contact.value}>"

    # --- the port ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._stopped = False
        await asyncio.to_thread(_prepare_parsing)
        await self._session.start()
        try:
            if self._session.makes_top:
                for path in self._paths.top:
                    await self._nodes.ensure(path)
        except BaseException:
            await self._session.stop()
            raise

    async def stop(self) -> None:
        self._stopped = True
        for entry in tuple(self._entries):
            await entry.close()
        for claim in tuple(self._claims.values()):
            await claim.close()
        for task in tuple(self._withdrawals):  # the session's end deletes the remaining claims
            task.cancel()
            await asyncio.wait([task])
        await self._session.stop()
        self._session.signal.notify()

    async def warnings(self) -> tuple[Problem, ...]:
        settings, found = self._session.settings, []
        parents = self._paths.top
        below = [f"{path}/{name}" for path in parents[:2] for name in await self._nodes.children(path)]
        if any([await self._nodes.open_to_all(path) for path in (*parents, *below)]):
            unsafe = (
                f"every client that reaches ZooKeeper {settings.zookeeper} can read and change configuration, "
                "addresses and datamarkers"
            )
            hint = "`wormholectl zookeeper credentials --to FOLDER`, see docs/zookeeper.md"
            found.append(Problem(unsafe, hint, code="credentials-exposed"))
        file = settings.auth_file
        if file is not None and await asyncio.to_thread(readable_by_others, file):
            found.append(
                Problem(
                    f"other users can read the credentials in {file}", f"chmod 600 {file}", code="credentials-exposed"
                )
            )
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

    async def register_attach(self, application: str, point: AttachPoint) -> Registration:
        given = {"address": point.address, "token_address": point.token_address}
        hidden = {name: "" for name, at in given.items() if at and is_loopback(at) and not self._on_loopback}
        data = attach_to_json(replace(point, **hidden))
        path = f"{self._paths.attach(application)}/{point.log}.{point.name}"
        return await self._announce(path, data, lambda by: attach_taken(point, by), lambda data: True)

    async def attach_points(self, application: str) -> tuple[AttachPoint, ...]:
        folder = self._paths.attach(application)

        async def one(name: str) -> AttachPoint | None:
            path = f"{folder}/{name}"
            return await self._nodes.record(path, lambda data: attach_from_json(name, data, path), _MADE_AGAIN)

        return tuple(await self._nodes.each(await self._nodes.children(folder), one))

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        places = [
            (dataset, copy, log)
            for dataset in await self._nodes.children(self._paths.publishers)
            for copy in await self._nodes.children(f"{self._paths.publishers}/{dataset}")
            for log in await self._nodes.children(f"{self._paths.publishers}/{dataset}/{copy}")
        ]

        async def one(place: tuple[str, str, str]) -> PublisherInfo | None:
            path = self._paths.publisher(*place)
            return await self._nodes.record(path, lambda data: publisher_from_json(*place, data, path), _MADE_AGAIN)

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
        fenced: dict[str, dict[str, bytes]] = {}
        for application, shard in due:
            nodes = fenced.setdefault(self._fence(shard), {})
            nodes[self._paths.flow(application, shard)] = flow_to_json(records[application, shard])
        for fence, nodes in fenced.items():
            await self._nodes.put_all(nodes, fence)
        for flow in due:
            written.wrote(flow, records[flow], contact)

    async def flows(
        self, applications: Collection[str] | None = None, includes: Callable[[str], bool] = lambda shard: True
    ) -> Mapping[tuple[str, str], FlowRecord]:
        if applications is None:
            applications = await self._nodes.children(self._paths.applications)
        keys = [
            (application, shard)
            for application in applications
            for shard in await self._nodes.children(self._paths.flows(application))
            if includes(shard)
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
            return await self._nodes.record(path, lambda data: monitor_from_json(host, data, path), _MADE_AGAIN)

        return tuple(await self._nodes.each(await self._nodes.children(self._paths.hosts), one))

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        path, good = self._paths.host(host), [HostRequest()]

        async def read(changed: Watcher) -> HostRequest:
            data = await self._nodes.get(path, changed)
            step = f"`wormholectl drain {host}`, or the same with --undo, writes it anew"
            request = self._nodes.parsed(path, data, lambda raw: host_from_json(raw, path), step)
            if request is not None or data is None:
                good[0] = request or HostRequest()
            return good[0]

        return self._watch(read)

    async def set_host(self, host: str, request: HostRequest) -> None:
        await self._nodes.put(self._paths.host(host), host_to_json(request))

    async def token_holders(self) -> tuple[str, ...]:
        found = []
        for name in sorted(await self._nodes.children(self._paths.applications)):
            path = self._paths.tokens(name)
            if tokens_from_json(await self._nodes.get(path) or b"", path):
                found.append(name)
        return tuple(found)

    def watch_tokens(self, application: str) -> AsyncIterator[tuple[AccessToken, ...]]:
        path = self._paths.tokens(application)
        good: list[tuple[AccessToken, ...]] = [()]

        async def read(changed: Watcher) -> tuple[AccessToken, ...]:
            data = await self._nodes.get(path, changed)
            found = self._nodes.parsed(path, data, lambda raw: tokens_from_json(raw, path))
            if found is not None or data is None:
                good[0] = found or ()
            return good[0]

        return self._watch(read)

    async def set_tokens(
        self, application: str, tokens: Collection[AccessToken], seen: Collection[AccessToken]
    ) -> None:
        path = self._paths.tokens(application)
        await self._nodes.ensure(path)
        data, version = await self._nodes.versioned(path)
        if tokens_from_json(data, path) != tuple(seen):
            raise tokens_changed(application)
        try:
            await self._nodes.replace(path, tokens_to_json(tokens), version)
        except BadVersionError:
            raise tokens_changed(application) from None

    async def record(self, entry: HistoryEntry) -> None:
        await self._config.record(entry)

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        return await self._config.history(limit)

    async def register_candidate(self, group: LogGroup, info: CandidateInfo) -> CandidateEntry:
        path = self._paths.candidate(group, info.name)

        def left_over(data: bytes) -> bool:
            found = candidate_from_json(info.name, data, path)
            return (found.pid, found.started) == (info.pid, info.started)

        await ensure_below_logs(self._nodes, self._paths, self._paths.candidates(group))
        data = self._candidate_data(info)
        entry = await self._announce(path, data, lambda by: candidate_taken(group, info, by), left_over)
        return _CandidateRegistration(entry, self._candidate_data)

    def watch_log(self, group: LogGroup) -> AsyncIterator[LogOwners]:
        return self._watch(lambda changed: self._logs.read(group, changed))

    async def own_log(self, group: LogGroup, info: PublisherInfo, *, server: str, why: str) -> LogClaim:
        if group in self._owning:
            raise log_taken(info, "this process")
        self._owning.add(group)  # before the first await, so that a second claim of the same log is refused
        shown = as_seen_by_others(info, info.address, service_on_loopback=self._on_loopback)
        claim = ZooKeeperClaim(self._nodes, self._paths, group, shown, server, self._now, self._claim_ended)
        await claim.open(why)
        self._claims[group] = claim
        return claim

    async def log_owners(self, groups: Collection[LogGroup] | None = None) -> Mapping[LogGroup, LogOwners]:
        if groups is None:
            return await self._logs.read_all()
        return {group: await self._logs.read(group) for group in groups}

    async def request_move(self, group: LogGroup, request: MoveRequest | None) -> None:
        if request is None:
            await self._nodes.remove(self._paths.move(group))
        else:
            await self._nodes.put(self._paths.move(group), move_to_json(request))

    # --- inside ------------------------------------------------------------------------------------------------

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        """Nodes without a valid record, by path. Each was left out (or its last valid form kept) and logged once."""
        return self._nodes.problems

    def _watch(self, read: Callable[[Watcher], Awaitable[_T]]) -> AsyncIterator[_T]:
        return self._nodes.watch(read, lambda: self._stopped)

    def _monitor_data(self, info: MonitorInfo) -> bytes:
        address = info.address and page_address(info.address)
        return monitor_to_json(as_seen_by_others(info, address, service_on_loopback=self._on_loopback))

    def _candidate_data(self, info: CandidateInfo) -> bytes:
        return candidate_to_json(as_seen_by_others(info, info.address, service_on_loopback=self._on_loopback))

    def _fence(self, shard: str) -> str:
        """The path that a write for the shard has to check; empty if no log that was owned here includes the shard."""
        claims = [claim for group, claim in self._claims.items() if group.includes(shard)]
        return max(claims, key=lambda claim: claim.held).fence() if claims else ""

    def _given_up(self, group: LogGroup, session: int) -> bool:
        return session == self._session.session_id and group not in self._owning

    def _claim_ended(self, claim: ZooKeeperClaim, left: Collection[str]) -> None:
        self._owning.discard(claim.group)
        if left:
            task = asyncio.create_task(self._withdraw(claim.group, left), name=f"give up {claim.group}")
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)

    async def _withdraw(self, group: LogGroup, claims: Collection[str]) -> None:
        """Delete claims of this session, and retry while contact is missing. A claim that stays keeps other processes
        from the log as long as this process lives.
        """
        while True:
            contact_seen = self._session.signal.version
            try:
                await withdraw(self._session, self._paths, group, claims)
            except CoordinationLost:
                await self._session.pause(contact_seen)
                continue
            except WormholeError as error:
                _log.error("%s could not be given up, it is free when this process ends: %s", group, error)
            return

    async def _flow_records(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FlowRecord]:
        paths = {key: self._paths.flow(*key) for key in keys}
        found = {}
        for (key, path), data in zip(paths.items(), await self._nodes.get_all(list(paths.values())), strict=True):
            record = self._nodes.parsed(path, data, partial(flow_from_json, where=path), _WRITTEN_AGAIN)
            if record is not None:
                found[key] = record
        return found

    async def _subscribers(self, application: str, changed: Watcher | None = None) -> tuple[SubscriberInfo, ...]:
        async def one(name: str) -> SubscriberInfo | None:
            path = self._paths.subscriber(application, name)
            parse = partial(subscriber_from_json, application, name, where=path)
            return await self._nodes.record(path, parse, _MADE_AGAIN)

        listed = await self._nodes.children(self._paths.subscribers(application), changed)
        return tuple(await self._nodes.each(listed, one))

    async def _announce(
        self, path: str, data: bytes, taken: Callable[[str], WormholeError], left_over: Callable[[bytes], bool]
    ) -> EphemeralNode:
        if any(entry.path == path for entry in self._entries):
            raise taken("registered in this process")
        entry = EphemeralNode(self._session, path, data, self._entries.discard, left_over)
        self._entries.add(entry)  # before the first await, so that a second entry for the same node is refused
        try:
            await self._nodes.ensure(path.rpartition("/")[0])
            await entry.open()
        except BaseException as error:
            self._entries.discard(entry)
            if isinstance(error, NodeTaken):
                raise taken(error.by) from None
            raise
        return entry


def _prepare_parsing() -> None:
    """Read the files that the first configuration of a process needs: those of installed datastores, and of pydantic's
    plugins. They are read now because stored settings are parsed on the event loop.
    """
    schemes()
    DatasetConfig.model_rebuild()


class _CandidateRegistration:
    """The entry of a candidate in its node. ``to_json``: makes the node's content."""

    def __init__(self, node: EphemeralNode, to_json: Callable[[CandidateInfo], bytes]) -> None:
        self._node = node
        self._to_json = to_json

    @property
    def held(self) -> bool:
        return self._node.held

    @property
    def exclusive(self) -> bool:
        return self._node.exclusive

    def update(self, info: CandidateInfo) -> None:
        self._node.update(self._to_json(info))

    async def close(self) -> None:
        await self._node.close()
