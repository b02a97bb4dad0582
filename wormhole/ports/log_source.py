"""The port to a datastore's log. :mod:`wormhole.ports.testing` has its contract suite, which runs over any source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wormhole.model.errors import PositionPurged
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.segment import Segment

__all__ = ["LogReader", "LogRelay", "LogSource", "PurgedInside", "RelayStatus", "SlotStatus", "SourceStatus"]


class PurgedInside(PositionPurged):
    """A range in the middle of what can be read is missing: what lies before it is still there.

    ``resume``: the end of the range, from which everything is there again.
    """

    def __init__(
        self, message: str, *, resume: Datamarker, first_missing: str = "", last_missing: str = "", **where: str | None
    ) -> None:
        super().__init__(message, first_missing=first_missing, last_missing=last_missing, **where)
        self.resume = resume


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """What keeps log from deletion at the datastore, for this source. ``kept_bytes``: how much; ``left_bytes``: how
    much more may be written until the datastore gives it up, ``None`` without a bound; ``lost``: it did.

    ``unsynced``: standbys of the datastore do not have it, though they could; ``None`` where they cannot.
    ``catalog_age``: transactions since the oldest row of the datastore's own tables that it keeps.
    """

    name: str
    kept_bytes: int
    left_bytes: int | None
    lost: bool
    unsynced: bool | None
    catalog_age: int


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """What the relay of a source holds, a record of its log on the publisher's disk.

    ``mode``: ``cache`` or ``hold``. ``begin``: where its first stretch begins, ``tip``: the end of its last one;
    ``None`` while it is empty. ``synced``: up to there the last stretch survives a loss of power. ``stretches``: begin
    and end of each, ascending. ``held``: up to there the datastore may delete its log, although a
    flow's datamarker is before that. ``bytes``: on disk, of ``log_bytes`` of log; ``budget_bytes``: how many it may
    take. ``slot_budget_bytes``: how much log the datastore keeps at most, 0 in ``cache``. ``keeps_slot``: when it is
    full the datastore keeps its log, instead of the flow furthest behind losing it. ``readers``: how many read it now.
    ``problem``: why nothing is recorded at the tip just now; ``unsynced_bytes``: of the relay, that a loss of power
    would take.
    """

    mode: str
    begin: Datamarker | None
    tip: Datamarker | None
    synced: LogPosition | None
    stretches: tuple[tuple[LogPosition, LogPosition], ...]
    held: LogPosition | None
    bytes: int
    log_bytes: int
    budget_bytes: int
    slot_budget_bytes: int
    keeps_slot: bool
    readers: int
    problem: Problem = NO_PROBLEM
    unsynced_bytes: int = 0


@dataclass(slots=True)
class SourceStatus:
    """The state of a source's log.

    ``end``: the place after the last complete transaction that was seen; ``pinned_bytes``: disk that the source itself
    keeps from deletion; ``oldest``: the earliest place that can still be read; ``problems``: for the operator;
    ``files``: (number, bytes) of the files that the log consists of now, ascending, empty when the source
    does not know; ``budget_bytes``: how much of the log is kept before the oldest of it goes, 0 when that is not
    bounded by bytes. ``end_unknown``: why the log may have grown beyond ``end`` unseen (its datastore does not answer);
    empty while it answers. ``base``: what the datastore calls the files, the argument of
    :meth:`~wormhole.ports.datastore.Datastore.native_place`; empty when they have no such name. ``slots``: what keeps
    the log at the datastore, where something does. ``relay``: what a relay holds, where there is one.
    """

    end: LogPosition
    oldest: LogPosition
    pinned_bytes: int
    problems: tuple[Problem, ...] = ()
    files: tuple[tuple[int, int], ...] = ()
    budget_bytes: int = 0
    end_unknown: str = ""
    base: str = ""
    slots: tuple[SlotStatus, ...] = ()
    relay: RelayStatus | None = None


class LogReader(Protocol):
    """One position in the log, moving forward. Used by one thread; every call may block.

    Order: segments come in log order and adjoin (``begin`` equals the previous ``end``) except after a ``gap``.
    Transactions: never interleaved; one larger than ``max_bytes`` comes in several segments, all but the last with
    ``marker`` ``None``. Only committed transactions, and only ones that the log holds whole (a torn tail is waited
    for). Duplicates: none from one reader; a reader opened at a datamarker begins with the first transaction after it.
    """

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """The next piece of log: about ``max_bytes`` of encoded updates, at most a few more than one update over.
        From a relay it is as large as it was recorded.

        Waits up to ``wait_s`` seconds for new log at the live end, then returns ``None``. A segment without updates
        still moves the place on. Raises :class:`~wormhole.model.errors.DecodeError` for a corrupt log,
        :class:`~wormhole.model.errors.SourceUnavailable` when it cannot be reached; after either the reader is closed
        and another is opened at the last place.
        """

    def close(self) -> None:
        """Close the reader; idempotent, callable from another thread: a waiting ``read`` then returns ``None`` soon."""


class LogRelay(Protocol):
    """What a relay of the log can do beside :class:`LogSource`. A publisher gets it as an argument of its own, and
    ``None`` where there is no relay: what was looked for in the source would be hidden by any object around that.
    """

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """The rows of ``shard`` that change in a range of the log, or in a little more; ``None``: it is not known which
        do. May block.
        """

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        """Nobody asks for a range that begins before ``oldest`` any more. May block."""

    def trim(self, keep_bytes: int) -> None:
        """Drop the oldest records until the relay takes no more than this. May block."""


class LogSource(Protocol):
    """One log of one copy of a dataset. Its methods may block: call them in a thread."""

    def start(self) -> None:
        """Check that the log can be tailed and begin to keep it from deletion.

        Raises :class:`~wormhole.model.errors.UnsupportedLog`, :class:`~wormhole.model.errors.SourceUnavailable` or
        :class:`~wormhole.model.errors.UsageError`.
        """

    def stop(self) -> None:
        """Give up every resource (what is kept on disk for a later start stays)."""

    def earliest(self) -> Datamarker:
        """The first transaction end at or before which nothing more can be read."""

    def latest(self) -> Datamarker:
        """After the last transaction committed before the call."""

    def locate(self, text: str) -> Datamarker:
        """The datamarker that a user's text means: ``earliest``, ``latest``, a place or a logical position of this kind
        of log.

        Raises :class:`~wormhole.model.errors.PositionError` or :class:`~wormhole.model.errors.PositionPurged`.
        """

    def locate_time(self, at_us: int) -> Datamarker:
        """The last transaction end that the log knows to have only transactions committed at or before ``at_us`` before
        it.

        ``at_us``: microseconds since 1970 in UTC. Times are as exact as the log keeps them; where that leaves a choice
        the earlier place is meant, so that nothing committed later is passed over. Raises
        :class:`~wormhole.model.errors.PositionPurged`, which names the begin of the log and its time, for a time
        before.
        """

    def open(self, marker: Datamarker) -> LogReader:
        """A reader whose first transaction is the first one after ``marker``.

        Reads the anchor again and compares. Raises :class:`~wormhole.model.errors.PositionPurged` when the log no
        longer reaches back (:class:`PurgedInside` where older log than the marker can be read),
        :class:`~wormhole.model.errors.Diverged` when the anchor differs or the marker is ahead of the log.
        """

    def shards(self) -> frozenset[str]:
        """Shards that the log is known to hold now; more may appear in segments (a table is created)."""

    def release(self, oldest: LogPosition) -> None:
        """No reader and no datamarker needs anything before ``oldest`` any more: it need not be kept from deletion."""

    def status(self) -> SourceStatus:
        """A recent view; does not block for long."""
