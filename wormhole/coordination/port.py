"""The port to coordination. ``tests/contract`` runs one suite over every implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from wormhole.model.errors import ConfigError
from wormhole.model.problem import Problem

if TYPE_CHECKING:
    from wormhole.config import ApplicationConfig, DatasetConfig

__all__ = [
    "HISTORY_KEPT",
    "WEIGHTS",
    "ConfigChange",
    "Contact",
    "Coordinator",
    "FlowRecord",
    "HistoryEntry",
    "HostRequest",
    "MonitorInfo",
    "PublisherInfo",
    "Registration",
    "StoredConfig",
    "SubscriberInfo",
]

HISTORY_KEPT: Final = 1000
"""So many entries of the history are kept; the oldest go first."""

WEIGHTS: Final = (1e-9, 1e9)
"""The least and the most that a subscriber may weigh.

Shares come from sums and quotients of weights: these are safe in any number.
"""


@dataclass(slots=True, frozen=True)
class SubscriberInfo:
    """A live subscriber: its application, its id, the address to dial, its weight (1.0 default) and start (seconds
    since 1970).

    ``user``: the uid that it runs as on its host; ``None``: not reported.
    """

    application: str
    id: str
    address: str
    weight: float = 1.0
    started: float = 0.0
    user: int | None = None


@dataclass(slots=True, frozen=True)
class PublisherInfo:
    """A live publisher: what log it tails, where it runs and the address of its admin service (empty: none).

    ``owner``: the lock under which it serves; who holds that lock next knows that this one ended. Empty: it holds none.
    """

    dataset: str
    copy: str
    log: str
    host: str
    pid: int
    address: str
    started: float
    owner: str = ""


@dataclass(slots=True, frozen=True)
class FlowRecord:
    """What a publisher reports of a flow (advisory: the marker store decides about epochs)."""

    owner: str
    subscriber: str
    epoch: int
    state: str


@dataclass(slots=True, frozen=True)
class MonitorInfo:
    """A live monitor: its host, its start (seconds since 1970), and the phase of every publisher it runs by
    ``dataset/copy/log``.

    ``address``: its status page, ``http://host:port/`` or ``https://host:port/`` (empty: none).
    """

    host: str
    pid: int
    address: str
    started: float
    publishers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class HostRequest:
    """What an operator requested of a host. ``drained``: it should run no publishers. ``by``: the operator; ``at``: the
    time of the request (seconds since 1970).
    """

    drained: bool = False
    by: str = ""
    at: float = 0.0


@dataclass(slots=True, frozen=True)
class HistoryEntry:
    """A change that somebody made: when (seconds since 1970), who, what (``config apply``, ``flows pause``), of what,
    and how that was before and after.
    """

    at: float
    who: str
    what: str
    target: str
    before: str = ""
    after: str = ""


@dataclass(slots=True, frozen=True)
class StoredConfig:
    """What the coordination service keeps of the configuration. ``version`` goes up by one at every change."""

    datasets: Mapping[str, DatasetConfig]
    applications: Mapping[str, ApplicationConfig]
    version: int


@dataclass(slots=True, frozen=True)
class ConfigChange:
    """What should be stored instead:

    ``None`` removes, what is not named stays. ``seen``: the version that this was decided on.
    """

    seen: int
    datasets: Mapping[str, DatasetConfig | None]
    applications: Mapping[str, ApplicationConfig | None]


class Contact(Enum):
    """The state of the connection to the coordination service."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No contact just now; the session may still be alive."""
    LOST = "lost"
    """The session is gone: others may have seen this process leave."""


class Registration(Protocol):
    """An ephemeral entry; it goes when it is closed or its process dies, and is made again after a lost session."""

    @property
    def held(self) -> bool:
        """Whether the entry is ours, as far as is known: false while another process has it, after our session was
        lost.
        """
        ...

    @property
    def exclusive(self) -> bool:
        """Whether holding it proves that no other process, on any host, does."""
        ...

    async def close(self) -> None:
        """Withdraw the entry; idempotent."""
        ...


class Coordinator(Protocol):
    """Live processes, owners of flows, and what should run.

    Watches are async iterators: they yield the present state at once and a whole new state after every change (changes
    close together may be joined). During an outage they are silent, afterwards they yield what is true then; they end
    when the coordinator is stopped. Methods raise :class:`~wormhole.model.errors.CoordinationLost` when an answer needs
    contact that is missing.
    """

    async def start(self) -> None:
        """Connect. Raises :class:`~wormhole.model.errors.CoordinationLost` when nothing answers within the configured
        time.
        """
        ...

    async def stop(self) -> None:
        """Withdraw every entry and disconnect; idempotent."""
        ...

    async def warnings(self) -> tuple[Problem, ...]:
        """What is not safe about the coordination service.

        Daemons log it at their start.
        """
        ...

    @property
    def contact(self) -> Contact:
        """The state of the connection now."""
        ...

    def last_contact(self) -> float:
        """When contact was last confirmed, by the monotonic clock of this process (seconds)."""
        ...

    def lease_s(self) -> float:
        """How long after :meth:`last_contact` an owner may act: 2/3 of the session timeout; infinity where nothing
        expires.
        """
        ...

    def watch_contact(self) -> AsyncIterator[Contact]:
        """The connection's state, now and at every change."""
        ...

    def watch_applications(self) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        """Every configured application by name."""
        ...

    def watch_datasets(self) -> AsyncIterator[Mapping[str, DatasetConfig]]:
        """Every configured dataset by name."""
        ...

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        """The live subscribers of one application, ordered by id."""
        ...

    async def application(self, name: str) -> ApplicationConfig:
        """One application. Raises :class:`~wormhole.model.errors.UnknownApplication` (its hint is the TOML to add)."""
        ...

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        """Announce a subscriber. Raises :class:`~wormhole.model.errors.UnknownApplication` (its hint is the TOML to
        add) and :class:`~wormhole.model.errors.ConfigError` for a loopback address in a coordination service that is
        not on loopback.
        """
        ...

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        """Announce a publisher. An entry of the same ``owner`` is what a killed predecessor left, and is replaced at
        once.

        Raises :class:`~wormhole.model.errors.Retryable` when another live one serves the same log."""
        ...

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        """What is stored and was found to be no valid record, by its path: it was left out."""
        ...

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        """Every live publisher."""
        ...

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        """Every live subscriber of every application."""
        ...

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        """Store the state of flows by ``(application, shard)``; advisory, the last write stays."""
        ...

    async def flows(self) -> Mapping[tuple[str, str], FlowRecord]:
        """What publishers stored last."""
        ...

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        """The epochs that publishers recorded for these shards, none older than this call; a shard without a record is
        left out. ``None`` where other processes see no records: in the static form.
        """
        ...

    async def configuration(self) -> StoredConfig:
        """What is stored now. Raises :class:`~wormhole.model.errors.ConfigError` for a node that holds no valid
        settings.
        """
        ...

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        """Store all of ``change`` together with its ``entry`` in the history, or nothing of it. Gives the new version.

        Raises :class:`~wormhole.model.errors.ConfigError` when the configuration changed since ``change.seen``, when it
        is too large, and in the static form. After :class:`~wormhole.model.errors.CoordinationLost` it may have been
        stored all the same.
        """
        ...

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        """Announce a monitor. Raises :class:`~wormhole.model.errors.ConfigError` when its host has another live one."""
        ...

    async def update_monitor(self, info: MonitorInfo) -> None:
        """Store a new state of the monitor that was registered here; without contact, when contact is back.

        Raises :class:`~wormhole.model.errors.ConfigError` when there is none.
        """
        ...

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        """Every live monitor, ordered by host."""
        ...

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        """What was requested of a host."""
        ...

    async def set_host(self, host: str, request: HostRequest) -> None:
        """Request something of a host; the last request stays."""
        ...

    async def record(self, entry: HistoryEntry) -> None:
        """Add to the history, which keeps the last :data:`HISTORY_KEPT` entries."""
        ...

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        """The last entries, newest first."""
        ...
