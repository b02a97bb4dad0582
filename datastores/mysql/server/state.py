"""Reads a server's state about once a second: its identity, the files of its log, and the log's end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.files.gtids import position_of
from datastores.mysql.files.names import basename, file_name, file_number
from datastores.mysql.files.packets import FolderFile
from datastores.mysql.server.connection import query, reading_answers
from datastores.mysql.server.settings import Settings, one_line
from wormhole.model.errors import SourceUnavailable, UnsupportedLog
from wormhole.model.position import LogPosition

__all__ = ["ServerState", "StateQueries", "queries_of"]

_TRIES: Final = 100
_SETTLE_S: Final = 0.003
_LISTS: Final = ("Gtid_list", "Previous_gtids")


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server at one moment, called a view.

    ``identity`` distinguishes servers: MySQL's ``server_uuid``, or MariaDB's ``server_id`` and (if it exists)
    ``server_uid``. ``files``: (number, bytes), ascending. ``end``: (file, offset) after the last transaction.
    ``gtids``: all GTIDs executed up to ``end``, as a GTID set (MySQL) or a position (MariaDB); empty without GTIDs.
    ``purged``: MySQL's ``gtid_purged``. ``state``: MariaDB's ``gtid_binlog_state``. ``kept``: earlier files of the log,
    which the server purged and a folder has. ``purged`` then means the part before those files.
    """

    identity: str
    server_id: int
    base: str
    files: tuple[tuple[int, int], ...]
    end: tuple[int, int]
    gtids: str
    purged: str = ""
    state: str = ""
    kept: tuple[FolderFile, ...] = ()

    def name(self, number: int) -> str:
        """The name of the file with this number."""
        return file_name(self.base, number)

    def place(self, order: LogPosition) -> str:
        """A place of this server's log for messages, in the product's form and in the server's."""
        return f"{order} ({self.name(order.file)}:{order.offset})"

    @property
    def first(self) -> int:
        """The number of the oldest file, which may be in the folder."""
        return self.kept[0].number if self.kept else self.own_first

    @property
    def own_first(self) -> int:
        """The number of the oldest file on the server."""
        return self.files[0][0]

    @property
    def all_files(self) -> tuple[tuple[int, int], ...]:
        """Number and bytes of all readable files, ascending."""
        return tuple((file.number, file.size) for file in self.kept) + self.files

    def size(self, number: int) -> int | None:
        """The bytes of a file; ``None``: neither the server nor the folder has it."""
        kept = self.kept_file(number)
        return self.own_size(number) if kept is None else kept.size

    def own_size(self, number: int) -> int | None:
        """The bytes of a file; ``None``: the server does not have it."""
        return next((size for n, size in self.files if n == number), None)

    def kept_file(self, number: int) -> FolderFile | None:
        """The file with this number if only the folder has it."""
        index = number - self.first
        return self.kept[index] if 0 <= index < len(self.kept) else None


class StateQueries:
    """Reads views with the statements of one kind of server. ``version``: decides between old and new statements.
    ``join``: adds a folder's files to a view."""

    def __init__(
        self,
        *,
        mariadb: bool,
        version: tuple[int, int, int],
        uid: bool = False,
        join: Callable[[ServerState], ServerState] | None = None,
    ) -> None:
        self.mariadb = mariadb
        self._join = join
        self._status = "SHOW MASTER STATUS" if mariadb or version < (8, 2, 0) else "SHOW BINARY LOG STATUS"
        if mariadb:
            uid_column = "@@GLOBAL.server_uid" if uid else "''"
            self._who = (
                f"SELECT CONCAT(@@GLOBAL.server_id, '/', {uid_column}) AS identity, @@GLOBAL.server_id AS server_id"
            )
            self._gtids = (
                "SELECT '' AS owned, @@GLOBAL.gtid_binlog_pos AS gtids, '' AS purged, @@GLOBAL.gtid_binlog_state "
                "AS state"
            )
        else:
            self._who = "SELECT @@GLOBAL.server_uuid AS identity, @@GLOBAL.server_id AS server_id"
            # A transaction is in the log before it is in gtid_executed. Between the two its GTID is in gtid_owned. The
            # variables are read in this order, so every transaction is in one of them.
            self._gtids = (
                "SELECT @@GLOBAL.gtid_owned AS owned, @@GLOBAL.gtid_executed AS gtids, @@GLOBAL.gtid_purged AS "
                "purged, '' AS state"
            )

    def identity(self, connection: Connection[Any]) -> str:
        """The server's identity, as in a view. Raises :class:`SourceUnavailable`."""
        with reading_answers("the server's identity"):
            return str(query(connection, self._who)[0]["identity"])

    def view(self, connection: Connection[Any], *, settled: bool = False) -> ServerState:
        """Read a view. ``settled``: ``gtids`` must be those exactly at ``end``, which takes some attempts on a busy
        server.

        Raises :class:`SourceUnavailable` (also for contradicting answers), :class:`UsageError` (a missing privilege) or
        :class:`UnsupportedLog` (no binlog).
        """
        with reading_answers("the server's state"):
            view = self._view(connection, settled)
        return view if self._join is None else self._join(view)

    def _view(self, connection: Connection[Any], settled: bool) -> ServerState:
        who = query(connection, self._who)[0]
        end = self._end(connection)
        for _ in range(_TRIES):
            gtids = query(connection, self._gtids)[0]
            again = self._end(connection)
            if (again == end and not gtids["owned"]) or not settled:
                break
            if again == end:  # a transaction before the end is not executed yet
                time.sleep(_SETTLE_S)
                again = self._end(connection)
            end = again  # use the newest answer, because a busy server advances during each pause
        else:
            if self.mariadb:
                # This statement is exact, but makes the server read its file.
                rows = query(connection, "SELECT BINLOG_GTID_POS(%s, %s) AS gtids", end)
                gtids = {**gtids, "gtids": rows[0]["gtids"] or gtids["gtids"]}
        logs = query(connection, "SHOW BINARY LOGS")
        if not logs:
            raise UnsupportedLog("the server has no binlog", hint="set log_bin in its configuration and restart it")
        files = [(file_number(str(row["Log_name"])), int(row["File_size"])) for row in logs]
        name, offset = end
        _check(files, file_number(name), offset)
        return ServerState(
            str(who["identity"]),
            int(who["server_id"]),
            basename(name),
            tuple(files),
            (file_number(name), offset),
            one_line(gtids["gtids"]),
            one_line(gtids["purged"]),
            one_line(gtids["state"]),
        )

    def end(self, connection: Connection[Any]) -> tuple[int, int]:
        """File number and offset of the end of the server's log. Raises :class:`SourceUnavailable`."""
        with reading_answers("the log's end"):
            name, offset = self._end(connection)
            return file_number(name), offset

    def position_before(self, connection: Connection[Any], view: ServerState, number: int) -> str:
        """MariaDB: the GTID position at the end of the files before file ``number``."""
        if (kept := view.kept_file(number)) is not None:
            return position_of(kept.gtids or "")
        name = view.name(number)
        with reading_answers(f"the beginning of {name}"):
            end = next((end for kind, end, _ in self._beginning(connection, name) if kind == "Gtid_list"), None)
            # The file's second event has the list. For a place before that event the server returns nothing.
            if end is None:
                return ""
            return one_line(query(connection, "SELECT BINLOG_GTID_POS(%s, %s) AS gtids", (name, end))[0]["gtids"])

    def listed_before(self, connection: Connection[Any], view: ServerState, number: int) -> str | None:
        """The list of GTIDs at the beginning of a file of the folder or the server; ``None``: the file has none."""
        if (kept := view.kept_file(number)) is not None:
            return kept.gtids
        name = view.name(number)
        with reading_answers(f"the beginning of {name}"):
            lists = (info for kind, _, info in self._beginning(connection, name) if kind in _LISTS)
            return next((one_line(info).strip("[]") for info in lists), None)

    def _beginning(self, connection: Connection[Any], name: str) -> list[tuple[str, int, str]]:
        """Type, end and text of a file's first events."""
        rows = query(connection, "SHOW BINLOG EVENTS IN %s LIMIT 3", (name,))
        return [(str(row["Event_type"]), int(row["End_log_pos"]), str(row["Info"])) for row in rows]

    def _end(self, connection: Connection[Any]) -> tuple[str, int]:
        rows = query(connection, self._status)
        if not rows:
            raise UnsupportedLog("the server writes no binlog", hint="set log_bin in its configuration and restart it")
        return str(rows[0]["File"]), int(rows[0]["Position"])


def queries_of(settings: Settings, join: Callable[[ServerState], ServerState] | None = None) -> StateQueries:
    """The :class:`StateQueries` for a server with these settings. ``join``: see the class."""
    uid = "server_uid" in settings.variables
    return StateQueries(mariadb=settings.mariadb, version=settings.version, uid=uid, join=join)


def _check(files: list[tuple[int, int]], file: int, offset: int) -> None:
    """Check that the listed files ascend and include the log's end, which was read before them."""
    numbers = [number for number, _ in files]
    if numbers != sorted(set(numbers)) or dict(files).get(file, -1) < offset:
        raise SourceUnavailable(
            f"the server's answers contradict each other: its log ends at {file}/{offset}, its files are {files[-3:]}",
            hint="it is asked again; if this repeats: look at the network between here and the server",
        )
