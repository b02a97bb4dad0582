"""Takes snapshots that show every transaction before one place, and no transaction at or after another place.

The table is locked against ALTER and TRUNCATE before the snapshot is taken. A table that was rewritten after the
snapshot would look empty in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from datastores.postgres.history.delivered_transactions import DeliveredTransactions, ServerSnapshot
from datastores.postgres.log.flushing import EMPTY_COMMIT, await_flushed
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.lsn import format_lsn, parse_lsn
from datastores.postgres.server.state import record_end
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["Begun", "Snapshots"]

_PATIENCE_S: Final = 3.0
_AGAIN_S: Final = 0.02
_SETTINGS: Final = ("lock_timeout = '2s'", "enable_sort = off", "max_parallel_workers_per_gather = 0", "jit = off")
_END: Final = "pg_catalog.pg_current_wal_insert_lsn()"
_SHOWN: Final = 5

Wait = Callable[[float], None]
"""Pauses for this many seconds. Raises :class:`~wormhole.model.errors.SourceUnavailable` to end the call."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An open transaction. ``high``: a place after everything that it shows. ``described``: the table's definition in
    the catalogues; ``None``: the table does not exist.
    """

    high: LogPosition
    described: str | None


class Snapshots:
    """``delivered``: the transactions that readers of the log delivered. ``block``, ``segment``: bytes of a page and of
    a file of the server's log.
    """

    def __init__(self, delivered: DeliveredTransactions, block: int, segment: int) -> None:
        self._delivered = delivered
        self._block = block
        self._segment = segment

    def begin(self, connection: Connection, lock: str, question: str, not_before: Datamarker, wait: Wait) -> Begun:
        """Open a transaction that shows everything before ``not_before``. ``lock``: the objects to lock, as SQL.
        ``question``: a SELECT of one text, run in the transaction.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if the server does not show ``not_before`` yet.
        """
        deadline = time.monotonic() + _PATIENCE_S
        ((end,),) = connection.query(f"SELECT {_END}")
        if self._place(end, not_before) < not_before.order:
            raise _unseen(not_before, "its log ends before that")
        # Read before the snapshot, because transactions that it shows may be removed from the set in between.
        suspects = self._delivered.suspects(not_before.order, connection)
        while True:
            text, end, described = self.open(connection, lock, question)
            snapshot = ServerSnapshot.parse(text or "")
            unseen = sorted(snapshot.whole(number) for number in suspects if not snapshot.shows(number))
            if not unseen:
                self._delivered.forget(snapshot)
                return Begun(self._place(end, not_before), described)
            connection.query("ROLLBACK")
            if time.monotonic() >= deadline:
                raise _unseen(not_before, f"of the transactions {_few(unseen)} it does not show yet how they ended")
            wait(_AGAIN_S)

    def open(self, connection: Connection, lock: str, question: str) -> tuple[str | None, str | None, str | None]:
        """Open a transaction. Returns its snapshot, the end of the log and the answer to ``question``."""
        connection.query(
            "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
            + "".join(f"SET LOCAL {setting}; " for setting in _SETTINGS)
            + f"LOCK TABLE {lock} IN ACCESS SHARE MODE"
        )
        (row,) = connection.query(f"SELECT pg_catalog.pg_current_snapshot(), {_END}, ({question})")
        snapshot, end, described = row
        return snapshot, end, described

    def await_written(self, connection: Connection, high: LogPosition, wait: Wait) -> None:
        """Make the server write its log up to ``high``, so that readers soon reach it. Readers get only written log,
        and a server writes records other than commits late.

        Raises :class:`~wormhole.model.errors.SourceUnavailable`.
        """

        def flushed() -> int:
            ((end,),) = connection.query("SELECT pg_catalog.pg_current_wal_flush_lsn()")
            return parse_lsn(end or "")

        await_flushed(high.offset, flushed, lambda: connection.query(EMPTY_COMMIT), wait)

    def _place(self, end: str | None, marker: Datamarker) -> LogPosition:
        offset = record_end(parse_lsn(end or ""), self._block, self._segment)
        return LogPosition(marker.order.incarnation, 0, offset)


def _unseen(not_before: Datamarker, why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"the server does not show everything before {not_before} ({format_lsn(not_before.order.offset)}) yet: {why}",
        hint="a retry follows; a commit is shown when its standby has it (synchronous_standby_names). After the "
        "publisher's start transactions that were open have to end: SELECT pid, state, query FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL; and SELECT * FROM pg_prepared_xacts;",
    )


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"{shown} and {len(numbers) - _SHOWN} others" if len(numbers) > _SHOWN else shown
