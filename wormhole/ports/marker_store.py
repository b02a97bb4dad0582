"""The port to where datamarkers are kept. ``tests/contract`` runs one suite over every implementation.

A flow's record holds its datamarker and its epoch together, so that storing a marker and checking who owns the flow is
one transaction: a late acknowledgement of a former owner is refused, whatever its clock shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from wormhole.model.flow_key import FlowKey, start_key
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import DeadLetterStore

__all__ = [
    "MOST_SKIPPED",
    "MOST_UNLOGGED",
    "UNASKED",
    "BackfillControl",
    "FlowControl",
    "FlowKey",
    "MarkerStore",
    "MarkerWrite",
    "ReplayControl",
    "ReplayState",
    "StoredFlow",
    "start_key",
]

MOST_SKIPPED = 100
"""Updates of one flow that may be skipped at a time: the list travels with every assignment."""

MOST_UNLOGGED = 100
"""Tables of one flow that its record names. More are reported until the publisher is started again."""


class ReplayState(Enum):
    """The stage of a mass replay of a flow. In each of them the flow is not served from the log."""

    HELD = "held"
    """It was begun; nothing was pushed yet."""
    REPLAYING = "replaying"
    NEEDS_REPLAY = "needs_replay"
    """It was abandoned, and the log no longer holds the flow's datamarker."""


@dataclass(slots=True, frozen=True)
class ReplayControl:
    """The mass replay that has a flow. ``mode``: ``log`` or ``latest``. ``who``: began it, or took it up last.

    ``begin``: where the flow's datamarker is set before the first push (``None``: it stays); ``until``: the end of what
    was planned; ``snapshot``: where the snapshot ends whose rows come first, if any do; ``where``: a filter beside the
    application's; ``progress``: how far a pass in mode ``latest`` is acknowledged, in the driver's own terms.
    ``lease_s``: how long the driver may be silent. ``ticket``: hash of what permits the driver to go on. ``attempts``:
    how often a task opened it, the last time at ``subscriber``; ``opener``: the name that task gave.
    """

    id: str
    who: str
    mode: str
    started_s: float
    lease_s: float
    ticket: str
    state: ReplayState = ReplayState.HELD
    begin: Datamarker | None = None
    until: Datamarker | None = None
    where: str = ""
    progress: bytes = b""
    attempts: int = 0
    subscriber: str = ""
    opener: str = ""
    snapshot: Datamarker | None = None


@dataclass(slots=True, frozen=True)
class BackfillControl:
    """The last backfill that was asked for a flow: the rows that its tables hold already.

    ``generation``: rises by one with each backfill of the flow, from 1; kept for ever. ``who``: asked for it, ``start``
    for the application's own ``start = "existing"``; ``started_s``: when, seconds since 1970. ``tables``: names as
    updates have them; empty: all that the application's filter may want. ``where``: a filter beside the application's.
    ``filter_hash``: of the application's filter when it began. ``rate``: bytes of rows per second at most, 0: what the
    dataset's configuration says. ``paused``: who paused it and when, for people to read; empty: it is not paused.
    ``ended``: ``""`` while it runs, ``"done"`` or ``"cancelled"``. How far it came is in the flow's datamarker.
    ``verify``: its rows are compared with what the application holds, in place of being delivered; that is not kept
    over epochs. ``rows``: that were sent until it ended; 0 while it runs, and where an earlier release ended it.
    ``lost``: only rows that changed in these ranges of the log, each with its begin and end; the keys are in the
    relay's folder.
    """

    generation: int
    who: str
    started_s: float
    tables: tuple[str, ...] = ()
    where: str = ""
    filter_hash: str = ""
    rate: float = 0.0
    paused: str = ""
    ended: str = ""
    verify: VerifyMode = VerifyMode.NONE
    rows: int = 0
    lost: tuple[tuple[LogPosition, LogPosition], ...] = ()


@dataclass(slots=True, frozen=True)
class FlowControl:
    """What operators asked of a flow; kept with its record, so that it holds after a restart too.

    ``paused``: who paused it and when, for people to read; empty: it is not paused. ``skip``: ids of updates to pass
    over, at most :data:`MOST_SKIPPED`; the publisher takes one out once the datamarker is behind it. ``replay``: the
    mass replay that has it, if any. ``missing``: why it is not known where the flow goes on, so that it is held until
    an operator decides; empty: its datamarker is known. ``backfill``: the last one that was asked for it; ``None``:
    none ever was. ``unlogged``: tables whose rows changed without a trace in the log and were not asked for since, at
    most :data:`MOST_UNLOGGED`.
    """

    paused: str = ""
    skip: tuple[str, ...] = ()
    replay: ReplayControl | None = None
    missing: Problem = NO_PROBLEM
    backfill: BackfillControl | None = None
    unlogged: tuple[str, ...] = ()


UNASKED: Final = FlowControl()
"""No operator asked anything of the flow."""


@dataclass(slots=True, frozen=True)
class StoredFlow:
    """A flow's durable record. ``start``: the text of the application's ``start`` when the flow was registered.

    ``filter_hash``: hash of the filter under which the marker was reached. ``control``: what operators asked for.
    ``rewound``: the marker was set back and nothing was acknowledged since.
    """

    marker: Datamarker
    epoch: int
    start: str
    filter_hash: str = ""
    control: FlowControl = FlowControl()
    rewound: bool = False


@dataclass(slots=True, frozen=True)
class MarkerWrite:
    """One acknowledged datamarker to store, with the epoch in which it was acknowledged.

    ``counts``: pages of delivery counts that changed, by name (letters, digits, dots and signs); an empty one is
    deleted.
    """

    flow: FlowKey
    epoch: int
    marker: Datamarker
    filter_hash: str = ""
    counts: Mapping[str, bytes] = field(default_factory=dict)


class MarkerStore(Protocol):
    """Durable flow records of one log. Methods may block: call them in a thread.

    Every method raises :class:`~wormhole.model.errors.MarkerStoreError` when the store cannot do it (full disk,
    corruption; the message names the path and what to do) or :class:`~wormhole.model.errors.CoordinationLost` when it
    cannot be reached, or when others may own the log and this publisher does so no longer. What a method wrote is
    durable when it returns.
    """

    @property
    def owner(self) -> str:
        """The exclusive lock that an open store holds: equal texts are the same lock, on any host.

        Empty where there is none.
        """

    def open(self) -> None:
        """Take the store; for a local store an exclusive lock: a second owner is refused with a clear error."""

    def close(self) -> None:
        """Give it up; idempotent."""

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        """All records of the log, or those of one application."""

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        """Create a record if there is none; returns what is stored afterwards.

        ``epoch`` and ``control``: of a flow that is not new, although its record is gone.
        """

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        """:meth:`register` for many flows, each with the record to create, in as few transactions as it takes. Of a
        record counts what :meth:`register` takes; after a failure some of them may be there. Raises for one that is
        too large once the others are there.
        """

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        """Raise the flow's epoch by one, or to one more than ``above`` if that is higher, and return it: from now on
        writes of older epochs are refused. Raises ``KeyError``.
        """

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        """:meth:`raise_epoch` for many flows, each with its ``above``, in as few transactions as it takes. Those
        without a record that can be read, or whose record became too large, are left out.
        """

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        """Store markers, grouped, each together with its counts: both or neither. Returns the flows whose write was
        refused because a newer epoch exists, or no record that can be read, or because the record is too large: it
        gets no epoch then until it fits.

        A marker with a smaller ``order`` than the stored one is refused too unless it carries a newer incarnation:
        going back is :meth:`rewind`'s.
        """

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        """The pages of the delivery counts of each of ``flows``, by name; none for a flow that is not there."""

    def rewind(self, flow: FlowKey, marker: Datamarker) -> int:
        """Set the marker, forwards or backwards, raise the epoch and return it. Raises ``KeyError``."""

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        """Replace what operators asked for; marker and epoch stay. Whether it was done: not when something else than
        ``was`` is stored (``None``: whatever it is). Raises ``KeyError``.
        """

    def forget(self, flow: FlowKey) -> None:
        """Delete the record and its counts (an application was removed)."""

    def dead_letters(self) -> DeadLetterStore:
        """Where the parked updates of these flows are; usable while this store is open."""
