"""Which transactions of a log were delivered lately: a snapshot does not have to show them yet.

A commit is in the log before a SELECT shows it: the server writes it, may wait for a standby, and only then makes it
visible. So the readers of a log note the transactions that they deliver, and the reader of existing rows of the same
log asks which of them its snapshot does not show.

Not everything was noted: readers begin somewhere. A transaction that was committed before that place may be invisible
still. Which ones may be is asked once, later: those that held the lock on their own id then.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from datastores.postgres.server.connection import Connection
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import LogPosition

__all__ = ["DeliveredTransactions", "ServerSnapshot", "delivered_transactions"]

_MOST: Final = 1 << 16
_WRAP: Final = 1 << 32
# A session that is idle in its transaction is not committing it. Of other accounts' sessions the state is hidden
# without pg_read_all_stats: then they count.
_UNFINISHED: Final = (
    "SELECT DISTINCT l.transactionid FROM pg_catalog.pg_locks l WHERE l.locktype = 'transactionid' "
    "AND l.mode = 'ExclusiveLock' AND l.granted AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a "
    "WHERE a.pid = l.pid AND a.state LIKE 'idle in transaction%')"
)


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """``xmin:xmax:in progress`` as ``pg_current_snapshot()`` has it: ids of 64 bits, of transactions and not of their
    parts."""

    end: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> ServerSnapshot:
        """Raises ``ValueError`` for what is none."""
        _, end, ids = text.split(":")
        return cls(int(end), frozenset(int(one) for one in ids.split(",") if one))

    def whole(self, number: int) -> int:
        """The id of 64 bits whose lower half is ``number``, as the log has it: the one that is nearest."""
        return self.end + (number - self.end + _WRAP // 2) % _WRAP - _WRAP // 2

    def shows(self, number: int) -> bool:
        """Whether the transaction has ended for it. ``number``: the lower half of its id."""
        whole = self.whole(number)
        return whole < self.end and whole not in self.in_progress


class DeliveredTransactions:
    """Those of one log. Thread-safe.

    Everything with an end in ``(floor, ceiling]`` was noted, in one incarnation of the log. What ended before may be
    among the ``unfinished``, which are ``None`` until they were asked for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._ceiling = 0
        self._ends: dict[int, int] = {}
        self._unfinished: set[int] | None = None
        self._beginnings = 0  # how often the floor rose

    # --- what readers of the log do

    def begin(self, place: LogPosition) -> None:
        """A reader begins at ``place``."""
        with self._lock:
            if place.incarnation == self._incarnation and place.offset > self._ceiling:
                self._rise(place.offset)
            elif place.incarnation > self._incarnation:
                self._reset(place)

    def note(self, place: LogPosition, numbers: Sequence[int], ends: Sequence[int]) -> None:
        """A reader delivers these transactions and comes to ``place``; of each the lower half of its id, and the place
        after it.
        """
        with self._lock:
            if place.incarnation != self._incarnation:
                return
            self._ends.update(zip(numbers, ends, strict=True))
            self._ceiling = max(self._ceiling, place.offset)
            if len(self._ends) > _MOST:
                newest = sorted(self._ends.items(), key=lambda one: one[1])[_MOST // 2 :]
                self._ends = dict(newest)
                self._rise(self._ceiling)

    # --- what a reader of existing rows does

    def suspects(self, before: LogPosition, connection: Connection) -> frozenset[int]:
        """The transactions before ``before`` that a snapshot which is taken from now on may not show. The server's log
        reaches to ``before`` at least.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` for a place of an earlier incarnation, and as
        :meth:`~datastores.postgres.server.connection.Connection.query`.
        """
        while True:
            with self._lock:
                if before.incarnation < self._incarnation:
                    raise SourceUnavailable(
                        f"the log went on in incarnation {self._incarnation}, and {before} is of the one before",
                        hint="it is tried again, with a place of the present one",
                    )
                if before.incarnation > self._incarnation:
                    self._reset(before)
                elif before.offset > self._ceiling:
                    self._rise(before.offset)
                if self._unfinished is not None:
                    late = (number for number, end in self._ends.items() if end <= before.offset)
                    # A transaction that was delivered ended where that says, and no earlier.
                    return frozenset(late) | (self._unfinished - self._ends.keys())
            self._ask(connection)

    def forget(self, snapshot: ServerSnapshot) -> None:
        """Forget what the snapshot shows, for so does every later one."""
        with self._lock:
            self._ends = {number: end for number, end in self._ends.items() if not snapshot.shows(number)}
            if self._unfinished is not None:
                self._unfinished = {number for number in self._unfinished if not snapshot.shows(number)}

    def refresh(self, connection: Connection) -> None:
        """Forget what can be forgotten. Raises as
        :meth:`~datastores.postgres.server.connection.Connection.query`.
        """
        if not self._incarnation:
            return
        if self._unfinished is None:
            self._ask(connection)
        ((text,),) = connection.query("SELECT pg_catalog.pg_current_snapshot()")
        self.forget(ServerSnapshot.parse(text or ""))

    # --- inside

    def _ask(self, connection: Connection) -> None:
        beginnings = self._beginnings
        rows = connection.query(_UNFINISHED)
        with self._lock:
            if self._beginnings == beginnings:  # else the log may have come to the new floor after the answer
                self._unfinished = {int(number or 0) for (number,) in rows}

    def _reset(self, place: LogPosition) -> None:
        self._incarnation = place.incarnation
        self._ends = {}
        self._ceiling = 0
        self._rise(place.offset)

    def _rise(self, floor: int) -> None:
        self._ceiling = max(self._ceiling, floor)
        self._unfinished = None
        self._beginnings += 1


_of_logs: WeakValueDictionary[Path, DeliveredTransactions] = WeakValueDictionary()
_finding: Final = threading.Lock()


def delivered_transactions(state_dir: Path) -> DeliveredTransactions:
    """Those of the log whose folder this is. In a process that does not read the log there are none: every snapshot
    then waits for the transactions that were unfinished a moment before.
    """
    with _finding:
        return _of_logs.setdefault(state_dir.resolve(), DeliveredTransactions())
