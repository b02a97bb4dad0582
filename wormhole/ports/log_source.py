"""The port (interface) to a datastore's log. The suite in :mod:`wormhole.ports.testing` runs over any source."""

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
    """A range in the middle of the log is missing. The log before it can still be read.

    ``resume``: the end of the range, from which on the log is complete again.
    """

    def __init__(
        self, message: str, *, resume: Datamarker, first_missing: str = "", last_missing: str = "", **where: str | None
    ) -> None:
        super().__init__(message, first_missing=first_missing, last_missing=last_missing, **where)
        self.resume = resume


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A replication slot: what keeps log from deletion at the datastore, for this source.

    ``kept_bytes``: how much log it keeps. ``left_bytes``: how much more may be written until the datastore gives the
    slot up; ``None``: there is no bound. ``lost``: the datastore gave the slot up.

    ``unsynced``: whether the datastore's standbys lack the slot; ``None``: its version cannot copy slots to standbys.
    ``catalog_age``: transactions since the oldest row of the system catalogues that the slot keeps.
    """

    name: str
    kept_bytes: int
    left_bytes: int | None
    lost: bool
    unsynced: bool | None
    catalog_age: int


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """The content of a source's relay, which records the log on the publisher's disk, in stretches without a gap.

    ``mode``: ``cache`` or ``hold``. ``begin``: where its first stretch begins; ``tip``: where its last one ends; both
    ``None`` while it is empty. ``stretches``: the beginning and the end of each, ascending. ``synced``: the place up to
    which the last stretch survives a loss of power; ``unsynced_bytes``: how much of the relay a loss of power would
    destroy.

    ``held``: the place up to which the datastore may delete its log, although a flow's datamarker is before that place.
    ``bytes``: its size on disk, for ``log_bytes`` of log; ``budget_bytes``: the limit of ``bytes``.
    ``slot_budget_bytes``: how much log the datastore keeps at most, 0 in ``cache``. ``keeps_slot``: whether the
    datastore keeps its log when the relay is full; if not, the flow furthest behind loses log.

    ``readers``: how many read the relay now. ``problem``: why nothing is recorded at the tip now.
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

    ``end``: the place after the last complete transaction that was seen. ``end_unknown``: why the log may have grown
    beyond ``end`` unseen (its datastore does not answer); empty while it answers. ``oldest``: the earliest place that
    can still be read. ``pinned_bytes``: disk space that the source itself keeps from deletion. ``budget_bytes``: how
    many bytes of log are kept before the oldest are deleted; 0: there is no bound in bytes. ``problems``: for the
    operator.

    ``files``: (number, bytes) of the files that the log consists of now, ascending; empty when the source does not know
    them. ``base``: the datastore's name for the files, the argument of
    :meth:`~wormhole.ports.datastore.Datastore.native_place`; empty when they have no such name. ``slots``: what keeps
    the log from deletion at the datastore. ``relay``: the state of the relay, if the source has one.
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
    """A cursor that moves forward in the log. One thread uses it; every call may block.

    Order: segments come in log order. Each ``begin`` equals the previous ``end``, except after a ``gap``. Transactions:
    never interleaved. One larger than ``max_bytes`` comes in several segments, all but the last with ``marker``
    ``None``. Only committed transactions are returned, and only ones that the log holds completely: the reader waits
    for the rest of a torn tail. Duplicates: none from one reader. A reader opened at a datamarker begins with the first
    transaction after it.
    """

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """The next piece of log, of about ``max_bytes`` of encoded updates. Its last few updates may exceed this size.
        A piece from a relay has the size with which it was recorded.

        Waits up to ``wait_s`` seconds for new log at the live end, then returns ``None``. A segment without updates
        still advances the place. Raises :class:`~wormhole.model.errors.DecodeError` for a corrupt log and
        :class:`~wormhole.model.errors.SourceUnavailable` when it cannot be reached. After either error the caller
        closes the reader and opens another one at the last place.
        """

    def close(self) -> None:
        """Close the reader; idempotent, callable from another thread: a waiting ``read`` then returns ``None`` soon."""


class LogRelay(Protocol):
    """The methods of a relay of the log besides those of :class:`LogSource`.

    A publisher gets the relay as an argument of its own; ``None``: there is no relay. It does not look for these
    methods in the source, because an object that wraps the source would hide them.
    """

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """The rows of ``shard`` that change in a range of the log or slightly beyond it; ``None``: they are not known.
        May block.
        """

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        """Drop the keys that are needed only for ranges that begin before ``oldest``; they are not requested any more.
        May block.
        """

    def trim(self, keep_bytes: int) -> None:
        """Drop the oldest records until the relay takes no more than this. May block."""


class LogSource(Protocol):
    """One log of one copy of a dataset. Its methods may block: call them in a thread."""

    def start(self) -> None:
        """Check that the log can be tailed, and begin to keep it from deletion.

        Raises :class:`~wormhole.model.errors.UnsupportedLog`, :class:`~wormhole.model.errors.SourceUnavailable` or
        :class:`~wormhole.model.errors.UsageError`.
        """

    def stop(self) -> None:
        """Release every resource. Files that a later start needs stay on disk."""

    def earliest(self) -> Datamarker:
        """The earliest transaction end from which the log can be read."""

    def latest(self) -> Datamarker:
        """The place after the last transaction committed before the call."""

    def locate(self, text: str) -> Datamarker:
        """The datamarker for a user's text: ``earliest``, ``latest``, a place, or a logical position of this kind of
        log.

        Raises :class:`~wormhole.model.errors.PositionError` or :class:`~wormhole.model.errors.PositionPurged`.
        """

    def locate_time(self, at_us: int) -> Datamarker:
        """The last transaction end before which, as far as the log shows, every transaction was committed at or before
        ``at_us``.

        ``at_us``: microseconds since 1970 in UTC. Times are as exact as the log keeps them. If several places are
        possible the earliest is returned, so that nothing committed later is passed over. Raises
        :class:`~wormhole.model.errors.PositionPurged`, which names the beginning of the log and its time, if ``at_us``
        is before that time.
        """

    def open(self, marker: Datamarker) -> LogReader:
        """A reader whose first transaction is the first one after ``marker``.

        Reads the transaction of the marker's anchor again, and compares it. Raises
        :class:`~wormhole.model.errors.PositionPurged` when the log begins after the marker (:class:`PurgedInside` if
        log older than the marker can be read), and :class:`~wormhole.model.errors.Diverged` when the anchor differs or
        the marker is after the end of the log.
        """

    def shards(self) -> frozenset[str]:
        """Shards that the log is known to hold now; more may appear in segments (a table is created)."""

    def release(self, oldest: LogPosition) -> None:
        """Allow the deletion of the log before ``oldest``: no reader and no datamarker needs it any more."""

    def status(self) -> SourceStatus:
        """The state of the log, recent rather than current. Does not block for long."""
