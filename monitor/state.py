"""What the monitor knows of its host: written by the supervisor and the watcher, read by page, metrics and health.

One event loop owns it. Times are seconds since 1970.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from wormhole.wire.v1 import admin_pb2

__all__ = ["HostEvent", "HostState", "LogKey", "Phase", "PublisherState"]

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


class Phase(Enum):
    """Where a publisher is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing off"
    """It ended by itself and is started again after a wait."""
    GIVEN_UP = "given up"
    """It ended too often, or said that its request is wrong: somebody has to act."""
    DRAINED = "drained"
    """It is wanted here, but the host was drained."""


@dataclass(slots=True)
class PublisherState:
    """One publisher that is wanted here, or still runs here.

    ``since``: when ``phase`` began. ``restarts``: how often it was started again since the monitor began. ``problem``:
    why it does not run, or what it does not answer; empty when all is well. ``status``: its last answer, from the time
    ``answered`` (0: none). ``admin`` and ``http``: its addresses, empty until it is ready. ``pid``: ``None`` while no
    process runs.
    """

    key: LogKey
    phase: Phase
    pid: int | None = None
    since: float = 0.0
    restarts: int = 0
    problem: str = ""
    status: admin_pb2.PublisherStatus | None = None
    answered: float = 0.0
    admin: str = ""
    http: str = ""


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something worth telling. ``subject``: a log (``shop/main/db1``), a flow (``app/shard``) or empty for the host.

    ``kind``: start, stop, restart, crash_loop, adopted, split, merge, data_loss, halted, needs_replay, config,
    coordination or drained.
    """

    at: float
    kind: str
    subject: str
    text: str


@dataclass(slots=True)
class HostState:
    """This host. ``coordination``: connected, suspended, lost or static. ``configuration``: where what is wanted came
    from, in one sentence. Writers call :meth:`changed` when they are done, readers :meth:`wait`.
    """

    host: str
    started: float = field(default_factory=time.time)
    publishers: dict[LogKey, PublisherState] = field(default_factory=dict)
    events: deque[HostEvent] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    coordination: str = "lost"
    configuration: str = ""
    drained: bool = False
    version: int = 0
    _waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def changed(self) -> None:
        """Tell everybody who waits that something is new."""
        self.version += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def note(self, event: HostEvent) -> None:
        """Add an event. Splits and merges of caravans use at most half of the list, so that other events are kept."""
        if event.kind in _OF_CARAVANS:
            known = [one for one in self.events if one.kind in _OF_CARAVANS]
            if len(known) >= _EVENTS // 2:
                self.events.remove(known[0])
        self.events.append(event)

    def tell(self, event: HostEvent) -> None:
        """:meth:`note` and :meth:`changed`."""
        self.note(event)
        self.changed()

    async def wait(self, seen: int) -> int:
        """Return the version as soon as it is not ``seen``."""
        while self.version == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.version
