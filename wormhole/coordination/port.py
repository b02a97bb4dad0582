"""The interface to coordination: live processes, owners of logs, configuration. Three forms implement it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from wormhole.model.errors import ConfigError
from wormhole.model.problem import Problem

if TYPE_CHECKING:
    from wormhole.config import ApplicationConfig, DatasetConfig
    from wormhole.coordination.access_tokens import AccessToken

__all__ = [
    "HISTORY_KEPT",
    "TERMS_KEPT",
    "WEIGHTS",
    "AttachPoint",
    "CandidateEntry",
    "CandidateInfo",
    "ConfigChange",
    "Contact",
    "Coordinator",
    "FlowRecord",
    "HistoryEntry",
    "HostRequest",
    "LogClaim",
    "LogGroup",
    "LogOwners",
    "MonitorInfo",
    "MoveRequest",
    "PublisherInfo",
    "Registration",
    "StoredConfig",
    "SubscriberInfo",
    "Term",
]

HISTORY_KEPT: Final = 1000
"""The number of entries of the history that are kept. The oldest are removed first."""

TERMS_KEPT: Final = 20
"""The number of terms of a log that are kept. The oldest are removed first."""

WEIGHTS: Final = (1e-9, 1e9)
"""The smallest and the largest weight of a subscriber.

Shares are computed from sums and quotients of weights. Within this range they are safe for any number of subscribers.
"""


@dataclass(slots=True, frozen=True)
class SubscriberInfo:
    """A live subscriber: its application, its id, the address to dial, its weight (1.0 default) and start (seconds
    since 1970).

    ``user``: the uid that it runs as on its host; ``None``: not reported. ``process``: the name that a dialling
    subscriber gives its process; empty for a subscriber that is dialled.
    """

    application: str
    id: str
    address: str
    weight: float = 1.0
    started: float = 0.0
    user: int | None = None
    process: str = ""


@dataclass(slots=True, frozen=True)
class PublisherInfo:
    """A live publisher: the log that it tails, where it runs and the address of its admin service (empty: none).

    ``owner``: the lock under which it serves; empty: none. A process that takes this lock later knows that this
    publisher ended.
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
class AttachPoint:
    """A live publisher or a standby that the subscribers of an application can dial.

    ``name``: the name of its copy and host. ``address``: for subscribers with a certificate;
    ``token_address``: for subscribers with a token. Empty: no address is known that other hosts can dial.
    """

    log: str
    name: str
    address: str = ""
    token_address: str = ""


@dataclass(slots=True, frozen=True)
class LogGroup:
    """The publishers that contend for one log. One of them owns it at a time.

    ``group``: the copy that they read, or ``@failover`` for the copies of the dataset's failover list.
    """

    dataset: str
    group: str
    log: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.group}/{self.log}"

    def includes(self, shard: str) -> bool:
        """Whether ``shard`` is a part of the log."""
        return shard == self.log or shard.startswith(f"{self.log}.")


@dataclass(slots=True, frozen=True)
class CandidateInfo:
    """A live process that may become the owner of a log.

    ``copy`` and ``host``: what it reads, and where, as the configuration names them. ``pid``, ``address`` and
    ``started``: as in :class:`PublisherInfo`. ``rank``: its place in the order of preference; 0 is the preferred one.
    ``server``: the identity of the server that it reads (empty: not known). ``lacking``: the delivered
    transactions that are missing in that server's log. ``since``: when it became a candidate (seconds since 1970).

    ``ready``: whether it could take over now. ``waits`` and ``hint``: the reason why it could not, and the next step.
    ``promotable``: it is not ready only because its server is a standby, which has to be promoted first.
    """

    copy: str
    host: str
    pid: int
    address: str
    started: float
    rank: int
    server: str = ""
    lacking: str = ""
    ready: bool = True
    waits: str = ""
    hint: str = ""
    since: float = 0.0
    promotable: bool = False

    @property
    def name(self) -> str:
        """The candidate's name in a :class:`MoveRequest`."""
        return f"{self.copy}@{self.host}"


@dataclass(slots=True, frozen=True)
class Term:
    """The period of service of one owner of a log.

    ``number``: rises by one each time the log is taken, also by the same process after a lost session. ``copy``,
    ``host`` and ``pid``: the owner. ``server``: the identity of the server that it read then. ``since``: when it took
    the log (seconds since 1970). ``why``: the reason for taking the log.
    """

    number: int
    copy: str
    host: str
    pid: int
    server: str
    since: float
    why: str


@dataclass(slots=True, frozen=True)
class MoveRequest:
    """An operator's request to move a log.

    ``to``: the :attr:`CandidateInfo.name` that should own it. ``by``: the operator. ``at``: the time of the request
    (seconds since 1970).
    """

    to: str
    by: str
    at: float


@dataclass(slots=True, frozen=True)
class LogOwners:
    """The owner of a log, and its candidates.

    ``candidates``: by rank, then name. ``terms``: the last :data:`TERMS_KEPT`, oldest first. ``move``: an operator's
    request that no owner has cleared yet.
    """

    owner: PublisherInfo | None
    candidates: tuple[CandidateInfo, ...]
    terms: tuple[Term, ...]
    move: MoveRequest | None


@dataclass(slots=True, frozen=True)
class FlowRecord:
    """A publisher's report of a flow. It is advisory: the marker store decides about epochs.

    ``process``: the process of the subscriber; see :class:`SubscriberInfo`.
    """

    owner: str
    subscriber: str
    epoch: int
    state: str
    process: str = ""


@dataclass(slots=True, frozen=True)
class MonitorInfo:
    """A live monitor: its host, its start (seconds since 1970), and the phase of each of its publishers, by
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
    """An operator's request for a host.

    ``drained``: the host should run no publishers. ``by``: the operator; ``at``: the time of the request (seconds since
    1970).
    """

    drained: bool = False
    by: str = ""
    at: float = 0.0


@dataclass(slots=True, frozen=True)
class HistoryEntry:
    """A change: its time (seconds since 1970), its user, its kind (``config apply``, ``flows pause``), its target, and
    the state before and after it.
    """

    at: float
    who: str
    what: str
    target: str
    before: str = ""
    after: str = ""


@dataclass(slots=True, frozen=True)
class StoredConfig:
    """The stored configuration. ``version`` rises by one with every change."""

    datasets: Mapping[str, DatasetConfig]
    applications: Mapping[str, ApplicationConfig]
    version: int


@dataclass(slots=True, frozen=True)
class ConfigChange:
    """A change of the stored configuration. ``None`` removes a record; records that are not named stay.

    ``seen``: the version on which the change is based.
    """

    seen: int
    datasets: Mapping[str, DatasetConfig | None]
    applications: Mapping[str, ApplicationConfig | None]


class Contact(Enum):
    """The state of the connection to the coordination service."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No contact at the moment; the session may still be alive."""
    LOST = "lost"
    """The session ended: other processes may have seen this one leave."""


class Registration(Protocol):
    """An ephemeral entry. It is removed when it is closed or its process dies, and is made again after a lost
    session.
    """

    @property
    def held(self) -> bool:
        """Whether this process holds the entry, as far as is known. It is false while another process holds the entry
        after this process lost its session.
        """

    @property
    def exclusive(self) -> bool:
        """Whether holding the entry proves that no other process, on any host, holds it."""

    async def close(self) -> None:
        """Withdraw the entry; idempotent."""


class CandidateEntry(Registration, Protocol):
    """The entry of a candidate."""

    def update(self, info: CandidateInfo) -> None:
        """Announce ``info``, of the same copy and host, from now on. Without contact it is announced when contact is
        back.
        """


class LogClaim(Protocol):
    """The ownership of a log.

    After a lost session the log is taken again automatically, unless another process owned it meanwhile.
    """

    @property
    def held(self) -> bool:
        """Whether this process owns the log, as far as is known. It is false from the end of a session until the log is
        taken again.
        """

    @property
    def term(self) -> int:
        """The number of the present term."""

    def fence(self) -> str:
        """The path of a node that exists exactly as long as this process owns the log; another node after each taking.

        A transaction that checks the node writes nothing for a former owner. The path is empty if nothing can be
        checked: in memory.
        """

    async def note_server(self, server: str) -> None:
        """Record that the log is now read from this server, under the same name. Does nothing if the claim is lost.

        Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """

    async def lost(self) -> str:
        """Return the reason once another process owns the log, or may have owned it meanwhile. The log is then not
        taken again.
        """

    async def close(self) -> None:
        """Give the log up; idempotent. Without contact it is given up when contact is back, or with the
        session's end.
        """


class Coordinator(Protocol):
    """Live processes, owners of flows, and the configuration.

    Watches are async iterators. They yield the present state at once, and a whole new state after every change (changes
    close together may be joined). During an outage they are silent, and afterwards they yield the state at that time.
    They end when the coordinator is stopped. Methods raise :class:`~wormhole.model.errors.CoordinationLost` when an
    answer needs contact that is missing.
    """

    async def start(self) -> None:
        """Connect. Raises :class:`~wormhole.model.errors.CoordinationLost` when nothing answers within the configured
        time.
        """

    async def stop(self) -> None:
        """Withdraw every entry and disconnect; idempotent."""

    async def warnings(self) -> tuple[Problem, ...]:
        """Safety problems of the coordination service. Daemons log them at their start."""

    @property
    def contact(self) -> Contact:
        """The state of the connection now."""

    def last_contact(self) -> float:
        """When contact was last confirmed, by the monotonic clock of this process (seconds)."""

    def lease_s(self) -> float:
        """How long an owner may act after :meth:`last_contact`, in seconds: 2/3 of the session timeout; infinity if
        nothing expires.
        """

    def watch_contact(self) -> AsyncIterator[Contact]:
        """The connection's state, now and at every change."""

    def watch_applications(self) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        """Every configured application by name."""

    def watch_datasets(self) -> AsyncIterator[Mapping[str, DatasetConfig]]:
        """Every configured dataset by name."""

    def watch_subscribers(self, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        """The live subscribers of one application, ordered by id."""

    async def application(self, name: str) -> ApplicationConfig:
        """One application. Raises :class:`~wormhole.model.errors.UnknownApplication` (its hint is the TOML to add)."""

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        """Announce a subscriber. Raises :class:`~wormhole.model.errors.UnknownApplication` (its hint is the TOML to
        add) and :class:`~wormhole.model.errors.ConfigError` for a loopback address in a coordination service that is
        not on loopback.
        """

    async def register_publisher(self, info: PublisherInfo) -> Registration:
        """Announce a publisher. An entry of the same ``owner`` was left by a killed predecessor, and is replaced at
        once.

        Raises :class:`~wormhole.model.errors.Retryable` when another live publisher serves the same log.
        """

    async def register_attach(self, application: str, point: AttachPoint) -> Registration:
        """Announce where subscribers of the application dial this publisher. An entry of the same log and name was left
        by a killed predecessor, and is replaced.
        """

    async def attach_points(self, application: str) -> tuple[AttachPoint, ...]:
        """Where subscribers of the application may dial, by log and name."""

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        """Stored nodes without a valid record, by path. They were left out."""

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        """Every live publisher."""

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        """Every live subscriber of every application."""

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        """Store the state of flows by ``(application, shard)``; advisory, the last write stays.

        Raises :class:`~wormhole.model.errors.CoordinationLost` also for the flows of a log that this coordinator owned
        and no longer owns, because its new owner writes them now.
        """

    async def flows(
        self, applications: Collection[str] | None = None, includes: Callable[[str], bool] = lambda shard: True
    ) -> Mapping[tuple[str, str], FlowRecord]:
        """The records that publishers stored last. ``applications``: only their flows; ``None``: those of all.
        ``includes``: selects the shards. No other record is read.
        """

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        """The epochs that publishers recorded for these shards, none older than this call. A shard without a record is
        left out. ``None`` if other processes see no records: in the static form.
        """

    async def configuration(self) -> StoredConfig:
        """The stored configuration. Raises :class:`~wormhole.model.errors.ConfigError` for a node without valid
        settings.
        """

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        """Store ``change`` and its history ``entry`` in one transaction. Returns the new version of the
        configuration.

        Raises :class:`~wormhole.model.errors.ConfigError` when the configuration changed since ``change.seen``, when it
        is too large, and in the static form. After :class:`~wormhole.model.errors.CoordinationLost` it may have been
        stored all the same.
        """

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        """Announce a monitor. Raises :class:`~wormhole.model.errors.ConfigError` when its host has another live one."""

    async def update_monitor(self, info: MonitorInfo) -> None:
        """Store a new state of the monitor that was registered here. Without contact it is stored when contact is back.

        Raises :class:`~wormhole.model.errors.ConfigError` if no monitor was registered.
        """

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        """Every live monitor, ordered by host."""

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        """The request for a host."""

    async def set_host(self, host: str, request: HostRequest) -> None:
        """Store a request for a host; the last request stays."""

    async def token_holders(self) -> tuple[str, ...]:
        """The names of the applications that have tokens, ordered. A removed application keeps its tokens."""

    def watch_tokens(self, application: str) -> AsyncIterator[tuple[AccessToken, ...]]:
        """The tokens of an application, also those that expired."""

    async def set_tokens(
        self, application: str, tokens: Collection[AccessToken], seen: Collection[AccessToken]
    ) -> None:
        """Store the tokens of an application.

        ``seen``: those on which the change is based. Raises :class:`~wormhole.model.errors.ConfigError` if others are
        stored.
        """

    async def record(self, entry: HistoryEntry) -> None:
        """Add an entry to the history, which keeps the last :data:`HISTORY_KEPT`."""

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        """The last entries, newest first."""

    async def register_candidate(self, group: LogGroup, info: CandidateInfo) -> CandidateEntry:
        """Announce a process that may become the owner of a log.

        Raises :class:`~wormhole.model.errors.Retryable` when its copy and host have another live candidate, and
        :class:`~wormhole.model.errors.ConfigError` in the static form.
        """

    def watch_log(self, group: LogGroup) -> AsyncIterator[LogOwners]:
        """The owner of a log, and its candidates. In the static form nothing is yielded."""

    async def own_log(self, group: LogGroup, info: PublisherInfo, *, server: str, why: str) -> LogClaim:
        """Take a log that has no owner. An operator's request for the log is cleared.

        ``server`` and ``why``: for its :class:`Term`. Raises :class:`~wormhole.model.errors.Retryable` at once when
        another process, or another claim of this coordinator, owns the log, and
        :class:`~wormhole.model.errors.ConfigError` in the static form. If the call failed or was cancelled after the
        log was taken, the log is given up automatically.
        """

    async def log_owners(self, groups: Collection[LogGroup] | None = None) -> Mapping[LogGroup, LogOwners]:
        """The owners of each of ``groups``; ``None``: those of every log that has, or had, an owner or a candidate. In
        the static form no log has an owner.
        """

    async def request_move(self, group: LogGroup, request: MoveRequest | None) -> None:
        """Request that another candidate owns a log. The last request stays until the log is taken. ``None`` withdraws
        it.

        Raises :class:`~wormhole.model.errors.ConfigError` in the static form.
        """
