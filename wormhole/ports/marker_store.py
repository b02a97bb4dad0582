"""The port (interface) of the stores of datamarkers. ``tests/contract`` runs one suite over every store.

A flow's record holds its datamarker and its epoch together, so that storing a marker and checking the flow's owner is
one transaction. So a late acknowledgement of a former owner is refused, without a comparison of clocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from wormhole.model.flow_key import FlowKey, start_key
from wormhole.model.position import Datamarker, LastAck, LogPosition
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
"""Limit of the updates of one flow that may be skipped at a time: the list is sent with every assignment."""

MOST_UNLOGGED = 100
"""Limit of the tables of one flow that its record names. More are reported until the publisher is restarted."""


class ReplayState(Enum):
    """The stage of a mass replay of a flow. In every stage the flow is not served from the log."""

    HELD = "held"
    """It began, and nothing was pushed yet."""
    REPLAYING = "replaying"
    NEEDS_REPLAY = "needs_replay"
    """It was abandoned, and the log no longer holds the flow's datamarker."""


@dataclass(slots=True, frozen=True)
class ReplayControl:
    """The mass replay that serves a flow.

    ``mode``: ``log`` or ``latest``. ``who``: the user that began it, or resumed it last. ``begin``: where the flow's
    datamarker is set before the first push (``None``: it stays). ``until``: the end of the planned range. ``snapshot``:
    the place of the snapshot with which the replay begins; ``None``: it begins with none. ``where``: a filter in
    addition to the application's. ``progress``: how far a pass in mode ``latest`` is acknowledged, in the driver's own
    encoding.

    ``lease_s``: how long the driver may be silent. ``ticket``: hash of the secret that permits the driver to continue.
    ``attempts``: how often a task opened the flow. ``subscriber`` and ``opener``: the subscriber and the name of the
    last such task.
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
    """The last backfill, the delivery of rows that tables hold already, that was requested for a flow.

    ``generation``: rises by one with each backfill of the flow, from 1; kept for ever. ``who``: the requester,
    ``start`` for the application's own ``start = "existing"``. ``started_s``: when, seconds since 1970. ``tables``:
    names as updates have them; empty: all that the application's filter may want. ``where``: a filter in addition to
    the application's. ``filter_hash``: the hash of the application's filter when the backfill began. ``rate``: limit in
    bytes of rows per second; 0: the limit of the dataset's configuration. ``verify``: its rows are compared with those
    of the application, instead of being delivered; the results are not kept over epochs. ``lost``: only rows that
    changed in these ranges of the log are read; each range has its beginning and end, and the keys are in the relay's
    folder.

    ``paused``: who paused it and when, for people to read; empty: it is not paused. ``ended``: ``""`` while it runs,
    ``"done"`` or ``"cancelled"``. ``rows``: the rows that were sent until it ended; 0 while it runs, and if an earlier
    release ended it. Its progress is in the flow's datamarker.
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
    """The requests of operators for a flow. They are kept with its record, so that they survive a restart.

    ``paused``: who paused it and when, for people to read; empty: it is not paused. ``skip``: ids of updates to skip,
    at most :data:`MOST_SKIPPED`; the publisher removes an id once the datamarker is after its update. ``replay``: the
    mass replay that serves it, if any. ``missing``: why the flow's datamarker is unknown, for which the flow is held
    until an operator decides; empty: it is known. ``backfill``: the last backfill that was requested for it; ``None``:
    none was. ``unlogged``: tables whose rows changed without a record in the log, and for which no backfill was
    requested since, at most :data:`MOST_UNLOGGED`.
    """

    paused: str = ""
    skip: tuple[str, ...] = ()
    replay: ReplayControl | None = None
    missing: Problem = NO_PROBLEM
    backfill: BackfillControl | None = None
    unlogged: tuple[str, ...] = ()


UNASKED: Final = FlowControl()
"""No operator requested anything for the flow."""


@dataclass(slots=True, frozen=True)
class StoredFlow:
    """A flow's durable record.

    ``start``: the text of the application's ``start`` when the flow was registered. ``filter_hash``: hash of the filter
    under which the marker was reached; empty: no subscriber acknowledged one. ``control``: the requests of operators.
    ``rewound``: the marker was set back and nothing was acknowledged since. ``move``: the number of the last move that
    :meth:`MarkerStore.rewind` counted, which is the epoch that began with it; 0: there was none. ``last_ack``: the last
    acknowledgement; ``None``: there was none, or a release that does not store it wrote the record since.
    """

    marker: Datamarker
    epoch: int
    start: str
    filter_hash: str = ""
    control: FlowControl = FlowControl()
    rewound: bool = False
    move: int = 0
    last_ack: LastAck | None = None


@dataclass(slots=True, frozen=True)
class MarkerWrite:
    """One acknowledged datamarker to store, with the epoch in which it was acknowledged.

    ``counts``: the changed pages of delivery counts, by name (letters, digits, dots and signs); an empty page is
    deleted.
    """

    flow: FlowKey
    epoch: int
    marker: Datamarker
    filter_hash: str = ""
    counts: Mapping[str, bytes] = field(default_factory=dict)


class MarkerStore(Protocol):
    """Durable flow records of one log. Methods may block: call them in a thread.

    Every method raises :class:`~wormhole.model.errors.MarkerStoreError` when the store fails (full disk, corruption;
    the message names the path and the next step). It raises :class:`~wormhole.model.errors.CoordinationLost` when the
    store cannot be reached, or when this publisher no longer owns a log that other publishers may own. What a method
    wrote is durable when it returns.
    """

    @property
    def owner(self) -> str:
        """The name of the exclusive lock that an open store holds. Equal names are one lock, on any host.

        Empty where there is none.
        """

    def open(self) -> None:
        """Open the store. A local store takes an exclusive lock, and refuses a second owner with a clear error."""

    def close(self) -> None:
        """Close the store and release its lock; idempotent."""

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        """All records of the log, or those of one application."""

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        """Create a record if there is none. Returns the stored record.

        ``epoch`` and ``control``: the values of an older flow whose record is missing.
        """

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        """:meth:`register` for many flows, each with the record to create, in as few transactions as possible.

        Only the fields that :meth:`register` takes are used. After a failure some of the records may be stored. Raises
        for a record that is too large, after the others were stored.
        """

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        """Raise the flow's epoch by one, or to ``above + 1`` if that is higher, and return it. From then on writes of
        older epochs are refused. Raises ``KeyError``.
        """

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        """:meth:`raise_epoch` for many flows, each with its ``above``, in as few transactions as possible. Flows
        without a readable record, and flows whose record became too large, are left out.
        """

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        """Store markers in groups, each marker together with its counts: both or neither.

        Returns the flows whose write was refused. The reasons are: a newer epoch exists; there is no readable record;
        the record is too large, in which case the flow gets no epoch until it fits. A marker with a smaller ``order``
        than the stored one is refused too, unless it has a newer incarnation: only :meth:`rewind` sets a marker back.
        """

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        """The pages of the delivery counts of each of ``flows``, by name; none for a flow without a record."""

    def rewind(self, flow: FlowKey, marker: Datamarker, *, counts: bool = True) -> int:
        """Set the marker, forwards or backwards, raise the epoch and return it. Raises ``KeyError``.

        ``counts``: whether the epoch becomes the number of the flow's last move.
        """

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        """Replace the requests of operators; marker and epoch stay.

        Returns whether they were replaced: they are not if the stored ones differ from ``was`` (``None``: replace any).
        Raises ``KeyError``.
        """

    def forget(self, flow: FlowKey) -> None:
        """Delete the record and its counts (an application was removed)."""

    def dead_letters(self) -> DeadLetterStore:
        """The store of these flows' parked updates; usable while this store is open."""
