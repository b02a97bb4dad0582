"""The state of one host. The supervisor and the status poller write it; the page, the metrics and the health answers
read it.

One event loop owns the state. Times are seconds since 1970.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.wire.v1 import admin_pb2

__all__ = [
    "HostEvent",
    "HostState",
    "LogKey",
    "Phase",
    "ProcessKey",
    "ProcessState",
    "PublisherState",
    "SinkKey",
    "SinkState",
]

_EVENTS: Final = 200
_OF_CARAVANS: Final = {"split", "merge"}


@dataclass(frozen=True, slots=True, order=True)
class LogKey:
    """One log of one copy of a dataset; as text ``shop/main/db1``."""

    dataset: str
    copy: str
    log: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.copy}/{self.log}"


@dataclass(frozen=True, slots=True, order=True)
class SinkKey:
    """One sink of this host's file; as text ``sinks/lines``."""

    name: str

    def __str__(self) -> str:
        return f"sinks/{self.name}"


ProcessKey = LogKey | SinkKey
"""A process that a monitor runs: the publisher of a log, or a sink."""


class Phase(Enum):
    """The phases of a publisher's or a sink's process. "It" is the process in these descriptions."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing off"
    """It ended by itself and is restarted after a wait."""
    GIVEN_UP = "given up"
    """It ended too often, or reported a wrong configuration. An operator has to act."""
    DRAINED = "drained"
    """It is configured for this host, but the host is drained."""

    @property
    def label(self) -> str:
        """The name of the phase in ZooKeeper and in metrics."""
        return self.value.replace(" ", "_")


@dataclass(slots=True)
class ProcessState:
    """A process that is configured for this host, or still runs here.

    ``since``: when ``phase`` began. ``restarts``: number of restarts since the monitor began. ``problem``: why it does
    not run or does not answer; empty without a problem. ``admin`` and ``http``: its addresses, empty until it is ready.
    ``pid``: ``None`` while no process runs.
    """

    key: ProcessKey
    phase: Phase
    pid: int | None = None
    since: float = 0.0
    restarts: int = 0
    problem: str = ""
    admin: str = ""
    http: str = ""

    def forget_process(self) -> None:
        """Another process follows, or none."""
        self.admin = self.http = ""


@dataclass(slots=True)
class SinkState(ProcessState):
    """One sink. ``url``: the URL of its store; ``application``: the application whose updates it receives. Both are
    empty for a running sink that the file no longer contains. ``store``: the codes of the problems that it found in its
    store when it started. ``unverified``: the number of tables, counted per shard, whose rows may lack values until a
    backfill ends.
    """

    key: SinkKey
    url: str = ""
    application: str = ""
    store: str = ""
    unverified: int = 0

    def forget_process(self) -> None:
        """Another process follows, or none."""
        super(SinkState, self).forget_process()
        self.store, self.unverified = "", 0


@dataclass(slots=True)
class PublisherState(ProcessState):
    """One publisher. ``status``: its last answer, received at ``answered`` (0: it has not answered)."""

    key: LogKey
    status: admin_pb2.PublisherStatus | None = None
    answered: float = 0.0

    def forget_process(self) -> None:
        """Another process follows, or none."""
        super(PublisherState, self).forget_process()
        self.status, self.answered = None, 0.0

    def silent_s(self, now: float) -> float:
        """Seconds since the last answer, or since the phase began if that is later."""
        return max(0.0, now - max(self.answered, self.since))


@dataclass(frozen=True, slots=True)
class HostEvent:
    """An event on this host. ``subject``: a log (``shop/main/db1``), a flow (``app/shard``) or empty for the host.

    ``kind``: start, stop, restart, crash_loop, adopted, split, merge, owner, data_loss, halted, needs_replay, config,
    coordination or drained.
    """

    at: float
    kind: str
    subject: str
    text: str


@dataclass(slots=True)
class HostState:
    """The state of this host. ``coordination``: connected, suspended, lost or static. ``configuration``: one sentence
    that names the source of the configuration. ``drained_by``: the operator who drained the host; empty if it is not
    drained or the operator is not known.

    Writers call :meth:`changed` after a change. Readers call :meth:`wait`.
    """

    host: str
    started: float = field(default_factory=SYSTEM_CLOCK.wall)
    publishers: dict[LogKey, PublisherState] = field(default_factory=dict)
    sinks: dict[SinkKey, SinkState] = field(default_factory=dict)
    events: deque[HostEvent] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    coordination: str = "lost"
    configuration: str = ""
    drained: bool = False
    drained_by: str = ""
    version: int = 0
    clock: Clock = SYSTEM_CLOCK
    _waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def changed(self) -> None:
        """Wake every reader in :meth:`wait`."""
        self.version += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def add(self, event: HostEvent) -> None:
        """Add an event. Splits and merges of caravans use at most half of the list, so that other events are kept."""
        if event.kind in _OF_CARAVANS:
            known = [one for one in self.events if one.kind in _OF_CARAVANS]
            if len(known) >= _EVENTS // 2:
                self.events.remove(known[0])
        self.events.append(event)

    def report(self, kind: str, text: str, subject: str = "") -> None:
        """Add an event that happens now, and wake readers."""
        self.add(HostEvent(self.clock.wall(), kind, subject, text))
        self.changed()

    async def wait(self, seen: int) -> int:
        """Wait until the version of the state is not ``seen``. Returns the version."""
        while self.version == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.version
