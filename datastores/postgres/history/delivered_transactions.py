"""Records a log's recently delivered transactions, which a snapshot may not show yet.

A commit is in the log before a SELECT shows it: the server writes it, may wait for a standby, and only then makes it
visible. So the readers of a log record the transactions that they deliver. The reader of existing rows of the same log
finds which of them its snapshot does not show.

Transactions before the readers' beginning were not recorded, and some may still be invisible. The server is queried
once for these, later: they are the transactions that hold the lock on their own id at that time.
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
# A session that is idle in its transaction is not committing it. Without pg_read_all_stats the state of other accounts'
# sessions is hidden, and their transactions are included.
_UNFINISHED: Final = (
    "SELECT DISTINCT l.transactionid FROM pg_catalog.pg_locks l WHERE l.locktype = 'transactionid' "
    "AND l.mode = 'ExclusiveLock' AND l.granted AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a "
    "WHERE a.pid = l.pid AND a.state LIKE 'idle in transaction%')"
)


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """``xmin:xmax:in progress`` as ``pg_current_snapshot()`` returns it: 64-bit ids of top-level transactions."""

    end: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> ServerSnapshot:
        """Read the text of a snapshot. Raises ``ValueError`` for any other text."""
        _, end, ids = text.split(":")
        return cls(int(end), frozenset(int(one) for one in ids.split(",") if one))

    def whole(self, number: int) -> int:
        """The nearest 64-bit id whose lower half is ``number``, an id from the log."""
        return self.end + (number - self.end + _WRAP // 2) % _WRAP - _WRAP // 2

    def shows(self, number: int) -> bool:
        """Whether the transaction had ended when the snapshot was taken. ``number``: the lower half of its id."""
        whole = self.whole(number)
        return whole < self.end and whole not in self.in_progress


class DeliveredTransactions:
    """The recently delivered transactions of one log. Thread-safe.

    Every transaction with an end in ``(floor, ceiling]`` was recorded, in one incarnation of the log. Earlier
    transactions that are still invisible are in ``_unfinished``, which is ``None`` until the server was queried.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._ceiling = 0
        self._ends: dict[int, int] = {}
        self._unfinished: set[int] | None = None
        self._beginnings = 0  # the number of times that the floor rose

    # --- for readers of the log ---

    def begin(self, place: LogPosition) -> None:
        """Record that a reader begins at ``place``."""
        with self._lock:
            if place.incarnation == self._incarnation and place.offset > self._ceiling:
                self._rise(place.offset)
            elif place.incarnation > self._incarnation:
                self._reset(place)

    def note(self, place: LogPosition, numbers: Sequence[int], ends: Sequence[int]) -> None:
        """Record that a reader delivers these transactions and reaches ``place``.

        ``numbers``: the lower halves of their ids. ``ends``: the places after them.
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

    # --- for the reader of existing rows ---

    def suspects(self, before: LogPosition, connection: Connection) -> frozenset[int]:
        """The transactions before ``before`` that a snapshot taken after this call may not show. The server's log must
        reach ``before``.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` for a place of an earlier incarnation, and as
        :meth:`~datastores.postgres.server.connection.Connection.query`.
        """
        while True:
            with self._lock:
                if before.incarnation < self._incarnation:
                    raise SourceUnavailable(
                        f"the log went on in incarnation {self._incarnation}, and {before} is of the one before",
                        hint="a retry follows, with a place of the present incarnation",
                    )
                if before.incarnation > self._incarnation:
                    self._reset(before)
                elif before.offset > self._ceiling:
                    self._rise(before.offset)
                if self._unfinished is not None:
                    late = (number for number, end in self._ends.items() if end <= before.offset)
                    # A delivered transaction that ended after `before` is no suspect.
                    return frozenset(late) | (self._unfinished - self._ends.keys())
            self._ask(connection)

    def forget(self, snapshot: ServerSnapshot) -> None:
        """Remove the transactions that the snapshot shows, because every later snapshot shows them too."""
        with self._lock:
            self._ends = {number: end for number, end in self._ends.items() if not snapshot.shows(number)}
            if self._unfinished is not None:
                self._unfinished = {number for number in self._unfinished if not snapshot.shows(number)}

    def refresh(self, connection: Connection) -> None:
        """Remove the transactions that a new snapshot shows. Raises as
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
            if self._beginnings == beginnings:  # otherwise the log may have reached the new floor after the answer
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
    """The delivered transactions of the log with this state folder.

    A process that does not read the log has no record of them. Then every snapshot waits for the transactions that were
    unfinished shortly before.
    """
    with _finding:
        return _of_logs.setdefault(state_dir.resolve(), DeliveredTransactions())
