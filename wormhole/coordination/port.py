"""The port to coordination. ``tests/contract`` runs one suite over every implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from wormhole.model.errors import ConfigError
from wormhole.model.problem import Problem

if TYPE_CHECKING:
    from wormhole.config import ApplicationConfig, DatasetConfig

__all__ = [
    "HISTORY_KEPT",
    "TERMS_KEPT",
    "WEIGHTS",
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
"""So many entries of the history are kept; the oldest go first."""

TERMS_KEPT: Final = 20
"""So many terms of a log are kept; the oldest go first."""

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
class LogGroup:
    """The publishers that contend for one log, of which one at a time owns it.

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
    """A live process that may come to own a log.

    ``copy`` and ``host``: what it reads, and where, as the configuration names them. ``pid``, ``address`` and
    ``started``: as of a :class:`PublisherInfo`. ``rank``: its place in the order of preference; 0 is the preferred one.
    ``server``: the identity of the server that it reads (empty: not known). ``lacking``: what was delivered and is not
    in that server's log. ``ready``: whether it could take over now; ``waits`` and ``hint``: if not, why, and the next
    step. ``promotable``: not, for the one reason that its server is a standby which is to be promoted first. ``since``:
    when it became a candidate (seconds since 1970).
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
        """What a :class:`MoveRequest` calls it."""
        return f"{self.copy}@{self.host}"


@dataclass(slots=True, frozen=True)
class Term:
    """The service of one owner of a log.

    ``number``: rises by one each time the log is taken, also by the same process after a lost session. ``copy``,
    ``host`` and ``pid``: the owner. ``server``: the identity of the server that it read then. ``since``: when it took
    the log (seconds since 1970). ``why``: what made it take the log.
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
    """What an operator requested of a log. ``to``: the :attr:`CandidateInfo.name` that should own it. ``by``: the
    operator. ``at``: the time of the request (seconds since 1970).
    """

    to: str
    by: str
    at: float


@dataclass(slots=True, frozen=True)
class LogOwners:
    """Who owns a log, and who could.

    ``candidates``: by rank, then name. ``terms``: the last :data:`TERMS_KEPT`, oldest first. ``move``: what an operator
    requested and no taker has cleared yet.
    """

    owner: PublisherInfo | None
    candidates: tuple[CandidateInfo, ...]
    terms: tuple[Term, ...]
    move: MoveRequest | None


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
    """A change: when (seconds since 1970), who made it, what (``config apply``, ``flows pause``), of what,
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

    @property
    def exclusive(self) -> bool:
        """Whether holding it proves that no other process, on any host, does."""

    async def close(self) -> None:
        """Withdraw the entry; idempotent."""


class CandidateEntry(Registration, Protocol):
    """The entry of a candidate."""

    def update(self, info: CandidateInfo) -> None:
        """Announce ``info`` from now on, of the same copy and host; without contact it is announced when contact is
        back.
        """


class LogClaim(Protocol):
    """The ownership of a log.

    After a lost session the log is taken again by itself, unless another process owned it meanwhile.
    """

    @property
    def held(self) -> bool:
        """Whether the log is ours, as far as is known: false from the end of a session until the log is taken again."""

    @property
    def term(self) -> int:
        """The number of the present term."""

    def fence(self) -> str:
        """The path of a node that is there exactly as long as this process owns the log; another one after each taking.

        A transaction that checks it writes nothing for a former owner. Empty where nothing can be checked: in memory.
        """

    async def note_server(self, server: str) -> None:
        """The log is read from this server now, under the same name. Raises
        :class:`~wormhole.model.errors.CoordinationLost`, and nothing where the claim is gone.
        """

    async def lost(self) -> str:
        """Return once the log is another's, or may have been another's meanwhile: the reason. It is then not taken
        again.
        """

    async def close(self) -> None:
        """Give the log up; idempotent. Without contact that happens when contact is back, or with the session's end."""


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

    async def stop(self) -> None:
        """Withdraw every entry and disconnect; idempotent."""

    async def warnings(self) -> tuple[Problem, ...]:
        """What is not safe about the coordination service.

        Daemons log it at their start.
        """

    @property
    def contact(self) -> Contact:
        """The state of the connection now."""

    def last_contact(self) -> float:
        """When contact was last confirmed, by the monotonic clock of this process (seconds)."""

    def lease_s(self) -> float:
        """How long after :meth:`last_contact` an owner may act: 2/3 of the session timeout; infinity where nothing
        expires.
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
        """Announce a publisher. An entry of the same ``owner`` is what a killed predecessor left, and is replaced at
        once.

        Raises :class:`~wormhole.model.errors.Retryable` when another live one serves the same log."""

    @property
    def problems(self) -> Mapping[str, ConfigError]:
        """What is stored and was found to be no valid record, by its path: it was left out."""

    async def publishers(self) -> tuple[PublisherInfo, ...]:
        """Every live publisher."""

    async def subscribers(self) -> tuple[SubscriberInfo, ...]:
        """Every live subscriber of every application."""

    async def write_flows(self, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        """Store the state of flows by ``(application, shard)``; advisory, the last write stays.

        Raises :class:`~wormhole.model.errors.CoordinationLost` also for the flows of a log that was owned through this
        coordinator and is so no longer: its owner writes them now.
        """

    async def flows(
        self, applications: Collection[str] | None = None, includes: Callable[[str], bool] = lambda shard: True
    ) -> Mapping[tuple[str, str], FlowRecord]:
        """What publishers stored last: of these applications, ``None``: of all; of the shards that ``includes`` is true
        for. No other record is read.
        """

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        """The epochs that publishers recorded for these shards, none older than this call; a shard without a record is
        left out. ``None`` where other processes see no records: in the static form.
        """

    async def configuration(self) -> StoredConfig:
        """What is stored now. Raises :class:`~wormhole.model.errors.ConfigError` for a node that holds no valid
        settings.
        """

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        """Store all of ``change`` together with its ``entry`` in the history, or nothing of it. Gives the new version.

        Raises :class:`~wormhole.model.errors.ConfigError` when the configuration changed since ``change.seen``, when it
        is too large, and in the static form. After :class:`~wormhole.model.errors.CoordinationLost` it may have been
        stored all the same.
        """

    async def register_monitor(self, info: MonitorInfo) -> Registration:
        """Announce a monitor. Raises :class:`~wormhole.model.errors.ConfigError` when its host has another live one."""

    async def update_monitor(self, info: MonitorInfo) -> None:
        """Store a new state of the monitor that was registered here; without contact, when contact is back.

        Raises :class:`~wormhole.model.errors.ConfigError` when there is none.
        """

    async def monitors(self) -> tuple[MonitorInfo, ...]:
        """Every live monitor, ordered by host."""

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        """What was requested of a host."""

    async def set_host(self, host: str, request: HostRequest) -> None:
        """Request something of a host; the last request stays."""

    async def record(self, entry: HistoryEntry) -> None:
        """Add to the history, which keeps the last :data:`HISTORY_KEPT` entries."""

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        """The last entries, newest first."""

    async def register_candidate(self, group: LogGroup, info: CandidateInfo) -> CandidateEntry:
        """Announce a process that may come to own a log.

        Raises :class:`~wormhole.model.errors.Retryable` when its copy and host have another live candidate, and
        :class:`~wormhole.model.errors.ConfigError` in the static form.
        """

    def watch_log(self, group: LogGroup) -> AsyncIterator[LogOwners]:
        """Who owns a log, and who could. In the static form nothing is yielded."""

    async def own_log(self, group: LogGroup, info: PublisherInfo, *, server: str, why: str) -> LogClaim:
        """Own a log that has no owner; what an operator requested of it is done with.

        ``server`` and ``why``: for its :class:`Term`. Raises :class:`~wormhole.model.errors.Retryable` at once when
        another process, or another claim of this coordinator, owns it, and
        :class:`~wormhole.model.errors.ConfigError` in the static form. What was taken when the call failed or was
        cancelled is given up again by itself.
        """

    async def log_owners(self, groups: Collection[LogGroup] | None = None) -> Mapping[LogGroup, LogOwners]:
        """Each of ``groups``; ``None``: every log that has, or had, an owner or a candidate. In the static form no log
        has an owner.
        """

    async def request_move(self, group: LogGroup, request: MoveRequest | None) -> None:
        """Request that another candidate owns a log; the last request stays until the log is taken. ``None`` withdraws
        it.

        Raises :class:`~wormhole.model.errors.ConfigError` in the static form.
        """
