"""The types between command line and replay job: the request, its settings, the found publishers and the reports."""

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
"""The default for the most flows that Spark gets at one time. Each takes a thread of the driver and one of its JVM."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request. ``shards``: shell patterns; empty: all. ``rate``: bytes per second of all tasks together; 0: no limit.
    ``at_once``: the most flows that Spark gets at one time. ``snapshot``: the folder of a snapshot whose rows come
    first; empty: none. ``patience_s``: how long a subscriber or a publisher may be away. ``lease_s``: how long a flow
    stays with the replay after this driver died. ``id``: the id of this replay. ``who``: ``user@host``.
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
        """The command that resumes the replay."""
        return f"wormholectl replay --resume {self.id}" + (f" --snapshot {self.snapshot}" if self.snapshot else "")


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """The configuration of a replay. ``grow_s``: how long a running archiver may take for the archive's next file.
    ``tls``: to dial subscribers with. ``heartbeat_s``, ``max_frame``: the limits of streams, as publishers have them.
    ``mask_key_file``: the file with the key of hashes, as publishers have it.
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
        """The value formats of the dataset."""
        return Formats(self.dataset.value_format, dict(self.dataset.values))

    @property
    def source_kind(self) -> str:
        """The scheme of the source's URL."""
        return next(log.kind for copy in self.dataset.copies.values() for log in copy.logs.values())

    def archives(self, copy: str) -> bool:
        """Whether the archive is of the log that publishers of this copy serve."""
        group, archived = self.dataset.group, self.store.copy
        return not archived or group(copy) == group(archived)

    def log_of(self, status: admin_pb2.PublisherStatus) -> tuple[str, str, str]:
        """Dataset, group of copies and log, which stay the same when another publisher serves the log."""
        return status.dataset, self.dataset.group(status.copy), status.log


@dataclass(frozen=True, slots=True)
class FoundPublisher:
    """A publisher that answered. ``local``: permits changes there; ``None``: a certificate permits them."""

    status: admin_pb2.PublisherStatus
    reach: Reach
    local: LocalAdmin | None = None


class FindPublishers(Protocol):
    """Asks every publisher that can be found, and returns those for which ``wanted`` is true.

    Raises :class:`~wormhole.model.errors.WormholeError` if no wanted publisher answers and another one is silent, or if
    a wanted one cannot prove that it is a publisher.
    """

    def __call__(self, wanted: Callable[[admin_pb2.PublisherStatus], bool]) -> list[FoundPublisher]: ...


@dataclass(frozen=True, slots=True)
class FlowReport:
    """The result for a flow. ``state``: its state now, as in `wormholectl flows`. ``handed_over``: the live log
    continues after the whole requested range. ``code``: the problem, if the flow was not handed over.
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
    """Receives the progress of a replay."""

    def says(self, text: str) -> None:
        """A line for people."""
        ...

    def moves(self, progress: ReplayProgress) -> None:
        """The progress, about once a second."""
        ...
