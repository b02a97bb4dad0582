"""What a replay is asked for, and what it finds: the edge between the command line and the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.mode import Wanted
from spark_replay.replay.pieces import Formats
from spark_replay.replay.progress import ReplayProgress
from spark_replay.replay.publisher import Reach
from wormhole.config import ApplicationConfig, DatasetConfig, TlsFiles
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.local_admin import LocalAdmin
from wormhole.wire.v1 import admin_pb2

__all__ = [
    "AT_ONCE",
    "FindPublishers",
    "FlowReport",
    "FoundPublisher",
    "ReplayObserver",
    "ReplayRequest",
    "ReplaySettings",
]

AT_ONCE: Final = 256
"""Flows that Spark is given at one time, unless somebody says otherwise: each takes a thread of the driver and one of
its JVM.
"""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """``shards``: patterns as in a shell, all when empty. ``rate``: bytes per second of all tasks together, 0: no
    limit. ``at_once``: flows that Spark is given at one time, at most. ``snapshot``: the folder of one whose rows come
    first, empty: none. ``patience_s``: how long a subscriber or a publisher may be away; ``lease_s``: how long a flow
    stays with the replay when this driver is gone. ``id``: of this replay; ``who``: ``user@host``.
    """

    id: str
    who: str
    application: str
    shards: tuple[str, ...] = ()
    start: Asked = field(default_factory=Asked)
    stop: Asked = field(default_factory=Asked)
    where: str = ""
    snapshot: str = ""
    mode: Wanted = "auto"
    rate: float = 0.0
    at_once: int = AT_ONCE
    patience_s: float = 300.0
    lease_s: float = 30.0

    @property
    def resume_command(self) -> str:
        """The command that goes on with it."""
        return f"wormholectl replay --resume {self.id}" + (f" --snapshot {self.snapshot}" if self.snapshot else "")


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What is configured. ``grow_s``: how long the archive may take for its next file while the archiver works;
    ``tls``: to dial subscribers with; ``heartbeat_s``, ``max_frame``: of streams, as publishers have them;
    ``mask_key_file``: of hashes, as publishers have it.
    """

    dataset: DatasetConfig
    application: ApplicationConfig
    store: ArchiveStore
    tls: TlsFiles | None
    heartbeat_s: float
    max_frame: int
    grow_s: float
    mask_key_file: Path | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def formats(self) -> Formats:
        """What the values hold."""
        return Formats(self.dataset.value_format, dict(self.dataset.values))

    @property
    def source_kind(self) -> str:
        """The scheme of the source's URL."""
        return next(log.kind for copy in self.dataset.copies.values() for log in copy.logs.values())

    def archives(self, copy: str) -> bool:
        """Whether the archive is of what publishers of this copy serve."""
        group, archived = self.dataset.group, self.store.copy
        return not archived or group(copy) == group(archived)

    def log_of(self, status: admin_pb2.PublisherStatus) -> tuple[str, str, str]:
        """Dataset, group of copies and log: what stays when another publisher serves the log."""
        return status.dataset, self.dataset.group(status.copy), status.log


@dataclass(frozen=True, slots=True)
class FoundPublisher:
    """A publisher that answered. ``local``: the way to it that permits changes; ``None``: a certificate does."""

    status: admin_pb2.PublisherStatus
    reach: Reach
    local: LocalAdmin | None = None


class FindPublishers(Protocol):
    """Asks every publisher that can be found, and returns those that are ``wanted``.

    Raises :class:`~wormhole.model.errors.WormholeError` when none that is wanted answers and one is silent, or when
    nothing shows that one that is wanted is a publisher.
    """

    def __call__(self, wanted: Callable[[admin_pb2.PublisherStatus], bool]) -> list[FoundPublisher]: ...


@dataclass(frozen=True, slots=True)
class FlowReport:
    """What became of a flow. ``state``: of the flow now, as `wormholectl flows` says; ``handed_over``: the live log
    goes on behind all that was asked for; ``code``: of the problem, where it was not.
    """

    flow: str
    mode: str
    handed_over: bool
    state: str
    marker: str
    updates: int
    bytes: int
    message: str = ""
    hint: str = ""
    code: str = ""


class ReplayObserver(Protocol):
    """Whoever looks on."""

    def says(self, text: str) -> None:
        """A line for people."""
        ...

    def moves(self, progress: ReplayProgress) -> None:
        """How far it is; about once a second."""
        ...
