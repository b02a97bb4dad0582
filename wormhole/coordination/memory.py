"""Coordination within one process. Tests and the test kit use it, and tests can cause outages in it. It is also the
base of :mod:`wormhole.coordination.static`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from wormhole.config import ApplicationConfig, Config, DatasetConfig, find_application
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.change_signal import Signal, Unknown, watch
from wormhole.coordination.differences import changed
from wormhole.coordination.memory_claim import MemoryClaim, MemoryLog
from wormhole.coordination.port import (
    HISTORY_KEPT,
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
from wormhole.coordination.rules import (
    candidate_taken,
    changed_meanwhile,
    check_subscriber,
    host_taken,
    log_taken,
    no_monitor,
    not_owned,
    shortened,
    subscriber_taken,
    tokens_changed,
    who,
)
from wormhole.model.errors import ConfigError, CoordinationLost
from wormhole.model.problem import Problem

__all__ = ["MemoryCoordinator", "MemoryWorld"]

_T = TypeVar("_T")
_Info = AttachPoint | SubscriberInfo | PublisherInfo | MonitorInfo | CandidateInfo
_Registered = TypeVar("_Registered", SubscriberInfo, PublisherInfo, MonitorInfo)


class MemoryWorld:
    """The state that all clients share: configuration, live processes, and records of flows. For one event loop."""

    def __init__(self, config: Config | None = None) -> None:
        self.signal = Signal()
        self.applications: dict[str, ApplicationConfig] = dict(config.applications) if config else {}
        self.datasets: dict[str, DatasetConfig] = dict(config.datasets) if config else {}
        self.version = 0
        self.entries: dict[tuple[str, ...], _Info] = {}
        self.logs: dict[LogGroup, MemoryLog] = {}
        self.flows: dict[tuple[str, str], FlowRecord] = {}
        self.hosts: dict[str, HostRequest] = {}
        self.tokens: dict[str, tuple[AccessToken, ...]] = {}
        self.history: deque[HistoryEntry] = deque(maxlen=HISTORY_KEPT)

    def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        """Do :meth:`~wormhole.coordination.Coordinator.publish` for every client."""
        if change.seen != self.version:
            raise changed_meanwhile(change.seen)
        self.applications = changed(self.applications, change.applications)
        self.datasets = changed(self.datasets, change.datasets)
        self.version += 1
        self.history.append(shortened(entry))
        self.signal.notify()
        return self.version


@dataclass(slots=True, eq=False)
class _MemoryEntry:
    client: MemoryCoordinator
    key: tuple[str, ...]
    info: _Info
    held: bool = True
    exclusive: bool = True

    async def close(self) -> None:
        self.client._withdraw(self)

    def update(self, info: _Info) -> None:
        """Announce ``info`` from now on. Without a session it is announced when there is one again."""
        entries = self.client.world.entries
        if entries.get(self.key) is self.info:
            entries[self.key] = info
            self.client.world.signal.notify()
        self.info = info


class MemoryCoordinator:
    """One client of a :class:`MemoryWorld`. Its address checks are those of a service on loopback.

    ``clock``: the monotonic one; ``now``: seconds since 1970.
    """

    _exclusive = True

    def __init__(
        self,
        world: MemoryWorld | None = None,
        *,
        session_timeout: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.world = world or MemoryWorld()
        self._session_timeout = session_timeout
        self._clock = clock
        self._now = now
        self._contact = Contact.LOST
        self._last_contact = -math.inf
        self._stopped = False
        self._mine: list[_MemoryEntry] = []
        self._claims: dict[LogGroup, MemoryClaim] = {}
        """The last claim of each log that was owned here. Claims that ended are kept too, so that no later write
        passes.
        """

    # --- outages, for tests ------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """End contact. The session stays alive, so other clients still see this one."""
        self._last_contact = self.last_contact()
        self._set(Contact.SUSPENDED)

    def lose(self) -> None:
        """End the session: other clients see this one leave."""
        self._last_contact = self.last_contact()
        for entry in self._mine:
            self.world.entries.pop(entry.key, None)
        for claim in self._claims.values():
            claim.leave()
        self._set(Contact.LOST)

    def restore(self) -> None:
        """Restore contact. Registrations are made again, and so is a claim, if no other client owned the log since."""
        for entry in self._mine:
            self.world.entries.setdefault(entry.key, entry.info)
        for claim in self._claims.values():
            claim.come_back()
        self._set(Contact.CONNECTED)

    # --- the port ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._stopped = False
        self._set(Contact.CONNECTED)

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.lose()
            self._mine.clear()
            for claim in tuple(self._claims.values()):
                await claim.close()

    async def warnings(self) -> tuple[Problem, ...]:
        return ()

    @property
    def contact(self) -> Contact:
        return self._contact

    def last_contact(self) -> float:
        return self._clock() if self._contact is Contact.CONNECTED else self._last_contact

    def lease_s(self) -> float:
        return self._session_timeout * 2 / 3

    def watch_contact(self) -> AsyncIterator[Contact]:
        return watch(self.world.signal, lambda: self._contact, self._is_stopped)

    def watch_applications(self) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        return self._watch(lambda: dict(self.world.applications))

    def watch_datasets(self) -> AsyncIterator[Mapping[str, DatasetConfig]]:
        return self._watch(lambda: dict(self.world.datasets))

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        return self._watch(lambda: tuple(info for info in self._subscribers() if info.application == application))

    async def application(self, name: str) -> ApplicationConfig:
        self._need_contact()
        return find_application(self.world.applications, name)

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        application = await self.application(info.application)
        check_subscriber(info, application, service_on_loopback=True)
        key = ("subscriber", info.application, info.id)
        if key in self.world.entries:
            raise subscriber_taken(info, "registered in this process")
        return self._announce(key, info)

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        self._need_contact()
        key = ("publisher", info.dataset, info.copy, info.log)
        other = self.world.entries.get(key)
        if isinstance(other, PublisherInfo):
            raise log_taken(info, f"process {other.pid} on {other.host}")
        return self._announce(key, info)

    async def register_attach(self, application: str, point: AttachPoint) -> Registration:
        self._need_contact()
        return self._announce(("attach", application, point.log, point.name), point)

    async def attach_points(self, application: str) -> tuple[AttachPoint, ...]:
        self._need_contact()
        entries = sorted(self.world.entries.items())
        return tuple(point for key, point in entries if key[1] == application and isinstance(point, AttachPoint))

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        return {}

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        self._need_contact()
        return self._registered(PublisherInfo)

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        self._need_contact()
        return self._subscribers()

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        self._need_contact()
        for application, shard in records:
            claims = [claim for group, claim in self._claims.items() if group.includes(shard)]
            if claims and not any(claim.held for claim in claims):
                raise not_owned(f"writing the flow {application}/{shard}")
        self.world.flows.update(records)

    async def flows(
        self, applications: Collection[str] | None = None, includes: Callable[[str], bool] = lambda shard: True
    ) -> Mapping[tuple[str, str], FlowRecord]:
        self._need_contact()
        return {
            flow: record
            for flow, record in self.world.flows.items()
            if (applications is None or flow[0] in applications) and includes(flow[1])
        }

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        self._need_contact()
        known = {shard: self.world.flows.get((application, shard)) for shard in shards}
        return {shard: record.epoch for shard, record in known.items() if record is not None}

    async def configuration(self) -> StoredConfig:
        self._need_contact()
        return StoredConfig(dict(self.world.datasets), dict(self.world.applications), self.world.version)

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        self._need_contact()
        return self.world.publish(change, entry)

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        self._need_contact()
        other = self.world.entries.get(("monitor", info.host))
        if isinstance(other, MonitorInfo):
            raise host_taken(info, f"process {other.pid}")
        return self._announce(("monitor", info.host), info)

    async def update_monitor(self, info: MonitorInfo) -> None:
        entry = next((entry for entry in self._mine if entry.key == ("monitor", info.host)), None)
        if entry is None:
            raise no_monitor(info)
        entry.update(info)

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        self._need_contact()
        return self._registered(MonitorInfo)

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        return self._watch(lambda: self.world.hosts.get(host, HostRequest()))

    async def set_host(self, host: str, request: HostRequest) -> None:
        self._need_contact()
        self.world.hosts[host] = request
        self.world.signal.notify()

    async def token_holders(self) -> tuple[str, ...]:
        self._need_contact()
        return tuple(sorted(name for name, tokens in self.world.tokens.items() if tokens))

    def watch_tokens(self, application: str) -> AsyncIterator[tuple[AccessToken, ...]]:
        return self._watch(lambda: self.world.tokens.get(application, ()))

    async def set_tokens(
        self, application: str, tokens: Collection[AccessToken], seen: Collection[AccessToken]
    ) -> None:
        self._need_contact()
        if self.world.tokens.get(application, ()) != tuple(seen):
            raise tokens_changed(application)
        self.world.tokens[application] = tuple(tokens)
        self.world.signal.notify()

    async def record(self, entry: HistoryEntry) -> None:
        self._need_contact()
        self.world.history.append(shortened(entry))

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        self._need_contact()
        return tuple(self.world.history)[::-1][:limit]

    async def register_candidate(self, group: LogGroup, info: CandidateInfo) -> CandidateEntry:
        self._need_contact()
        key = (*self._candidates_of(group), info.name)
        other = self.world.entries.get(key)
        if isinstance(other, CandidateInfo):
            raise candidate_taken(group, info, f"process {other.pid}")
        return self._announce(key, info)

    def watch_log(self, group: LogGroup) -> AsyncIterator[LogOwners]:
        return self._watch(lambda: self._owners(group))

    async def own_log(self, group: LogGroup, info: PublisherInfo, *, server: str, why: str) -> LogClaim:
        self._need_contact()
        log = self.world.logs.setdefault(group, MemoryLog())
        if log.owner is not None:
            raise log_taken(info, who(log.owner.info))
        claim = MemoryClaim(log, info, server, self._now, self.world.signal.notify)
        log.move = None
        claim.take(why)
        self._claims[group] = claim
        return claim

    async def log_owners(self, groups: Collection[LogGroup] | None = None) -> Mapping[LogGroup, LogOwners]:
        self._need_contact()
        if groups is None:
            standby = {LogGroup(*key[1:4]) for key in self.world.entries if key[0] == "candidate"}
            groups = standby | self.world.logs.keys()
        return {group: self._owners(group) for group in sorted(groups, key=str)}

    async def request_move(self, group: LogGroup, request: MoveRequest | None) -> None:
        self._need_contact()
        self.world.logs.setdefault(group, MemoryLog()).move = request
        self.world.signal.notify()

    # --- inside ------------------------------------------------------------------------------------------------

    def _set(self, contact: Contact) -> None:
        self._contact = contact
        self.world.signal.notify()

    def _watch(self, present: Callable[[], _T]) -> AsyncIterator[_T]:
        def snapshot() -> _T | Unknown[_T]:
            return present() if self._contact is Contact.CONNECTED else Unknown()

        return watch(self.world.signal, snapshot, self._is_stopped)

    def _is_stopped(self) -> bool:
        return self._stopped

    def _need_contact(self) -> None:
        if self._contact is not Contact.CONNECTED:
            raise CoordinationLost(f"no contact with the coordination service ({self._contact.value})")

    @staticmethod
    def _candidates_of(group: LogGroup) -> tuple[str, ...]:
        return ("candidate", group.dataset, group.group, group.log)

    def _owners(self, group: LogGroup) -> LogOwners:
        log, place = self.world.logs.get(group, MemoryLog()), self._candidates_of(group)
        found = [
            info for key, info in self.world.entries.items() if key[:4] == place and isinstance(info, CandidateInfo)
        ]
        candidates = tuple(sorted(found, key=lambda info: (info.rank, info.name)))
        return LogOwners(None if log.owner is None else log.owner.info, candidates, log.terms, log.move)

    def _subscribers(self) -> tuple[SubscriberInfo, ...]:
        return self._registered(SubscriberInfo)

    def _registered(self, kind: type[_Registered]) -> tuple[_Registered, ...]:
        return tuple(info for _, info in sorted(self.world.entries.items()) if isinstance(info, kind))

    def _announce(self, key: tuple[str, ...], info: _Info) -> _MemoryEntry:
        entry = _MemoryEntry(self, key, info, exclusive=self._exclusive)
        self._mine.append(entry)
        self.world.entries[key] = info
        self.world.signal.notify()
        return entry

    def _withdraw(self, entry: _MemoryEntry) -> None:
        if entry in self._mine:
            self._mine.remove(entry)
            if self.world.entries.get(entry.key) is entry.info:
                del self.world.entries[entry.key]
            self.world.signal.notify()
