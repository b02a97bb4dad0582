"""Takes snapshots whose place in the log is known.

The log shows a commit before a SELECT does: both servers write it, may wait for a replica, and only then make it
visible. So a place read before or after a SELECT would not be the snapshot's. MariaDB stores the place in the log with
each snapshot (``binlog_snapshot_file`` and ``_position``). In MySQL, ``WAIT_FOR_EXECUTED_GTID_SET`` waits until GTIDs
are visible, and the end of the log, read after the snapshot, follows everything in the snapshot.

MariaDB's XA COMMIT is an exception: it is in the log, before the snapshot's place, shortly before its rows are visible.
Until then ``XA RECOVER`` lists the transaction. So the snapshot is taken only after each listed transaction left the
list, or was listed for so long that it is only prepared and not being committed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.files.names import file_number
from datastores.mysql.server.connection import query, reading_answers
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["MariaSnapshots", "MySqlSnapshots", "Snapshots"]

_PATIENCE_S: Final = 3.0
_AGAIN_S: Final = 0.02
_PREPARED_S: Final = 5.0
"""A transaction that is listed for this long is only prepared. One that is being committed is listed for
microseconds."""

Wait = Callable[[float], None]
"""Pauses for this many seconds. Raises :class:`~wormhole.model.errors.SourceUnavailable` to end the call."""


class Snapshots(ABC):
    """Takes snapshots on one kind of server. ``timed``: adds a timeout to a SELECT."""

    @abstractmethod
    def begin(self, connection: Connection[Any], not_before: Datamarker, wait: Wait) -> LogPosition:
        """Open a transaction whose snapshot shows everything before ``not_before``. Returns a place after everything
        that the snapshot shows.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if the server does not show ``not_before`` yet.
        """

    @abstractmethod
    def timed(self, select: str, seconds: float) -> str:
        """``select`` with a timeout that the server enforces. It must begin with SELECT."""


class MariaSnapshots(Snapshots):
    """MariaDB."""

    def __init__(self) -> None:
        self._listed: dict[str, float] = {}  # listed XA transactions, and since when

    def begin(self, connection: Connection[Any], not_before: Datamarker, wait: Wait) -> LogPosition:
        deadline = time.monotonic() + _PATIENCE_S
        self._await_xa(connection, deadline, wait)
        while True:
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            with reading_answers("the snapshot's place in the log"):
                rows = query(connection, "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'")
                named = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
                place = LogPosition(
                    not_before.order.incarnation,
                    file_number(named["binlog_snapshot_file"]),
                    int(named["binlog_snapshot_position"]),
                )
            if place >= not_before.order:
                return place
            query(connection, "ROLLBACK")
            if time.monotonic() >= deadline:
                raise _unseen(not_before)
            wait(_AGAIN_S)

    def timed(self, select: str, seconds: float) -> str:
        return f"SET STATEMENT max_statement_time = {max(0.001, seconds):.3f} FOR {select}"

    def _await_xa(self, connection: Connection[Any], deadline: float, wait: Wait) -> None:
        """Wait until every XA COMMIT in the log is visible."""
        waited: set[str] | None = None
        while True:
            now = time.monotonic()
            listed = {str(row["data"]) for row in query(connection, "XA RECOVER FORMAT = 'SQL'")}
            self._listed = {xid: self._listed.get(xid, now) for xid in listed}
            young = {xid for xid, since in self._listed.items() if now - since < _PREPARED_S}
            waited = young if waited is None else waited & young
            if not waited:
                return
            if now >= deadline:
                raise SourceUnavailable(
                    f"{len(waited)} XA transactions are prepared, and may be in the log and not visible yet",
                    hint="a retry follows, and succeeds once they are committed or a few seconds old",
                )
            wait(_AGAIN_S)


class MySqlSnapshots(Snapshots):
    """Takes snapshots on MySQL with GTIDs. ``status``: the statement that shows the end of the log."""

    def __init__(self, version: tuple[int, int, int]) -> None:
        self._status = "SHOW MASTER STATUS" if version < (8, 2, 0) else "SHOW BINARY LOG STATUS"

    def begin(self, connection: Connection[Any], not_before: Datamarker, wait: Wait) -> LogPosition:
        if not_before.delivered:
            asked = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s) AS late"
            rows = query(connection, asked, (not_before.delivered, _PATIENCE_S), within_s=3 * _PATIENCE_S)
            if rows[0]["late"] != 0:
                raise _unseen(not_before)
        query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        with reading_answers("the end of the log"):
            row = query(connection, self._status)[0]
            place = LogPosition(not_before.order.incarnation, file_number(str(row["File"])), int(row["Position"]))
        if place < not_before.order:
            raise _unseen(not_before)
        return place

    def timed(self, select: str, seconds: float) -> str:
        return f"SELECT /*+ MAX_EXECUTION_TIME({max(1, round(seconds * 1000))}) */ {select.removeprefix('SELECT ')}"


def _unseen(not_before: Datamarker) -> SourceUnavailable:
    return SourceUnavailable(
        f"the server does not show everything before {not_before} yet",
        hint="a retry follows; a server that waits for its replicas (semi-sync) shows a commit when they have it",
    )
