"""Claims replication ids: a reader's connection holds a named lock of the server for its id.

The lock is taken before the dump begins. On MariaDB a dump ends the dump of another connection with the same id, whose
next dump would in turn end the first one. `GET_LOCK` needs no privilege, and the server releases the lock however the
connection ends. Source: GET_LOCK, IS_USED_LOCK and SHOW REPLICAS in the manuals of MySQL 8.0-9 and MariaDB 10.6-11.
Readers on another server of the group are not noticed, nor are replicas that the account may not list.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import zlib
from collections.abc import Sequence
from typing import Any, Final, Self

from pymysql.connections import Connection

from datastores.mysql.server.connection import query, reading_answers
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["IdClaims", "ServerIds", "list_replicas"]

_log = logging.getLogger(__name__)

_ENDING_S: Final = 3  # seconds; the server notices a closed reader with its next heartbeats, one per second
_NEXT: Final = (
    "if that reader publishes the same log, stop one of the two publishers; "
    "otherwise give each publisher and each replica a range of its own with server_ids"
)


def list_replicas(*, mariadb: bool, version: tuple[int, int, int]) -> str:
    """The statement that lists the connected replicas with their ids."""
    return "SHOW SLAVE HOSTS" if mariadb or version < (8, 0, 22) else "SHOW REPLICAS"


class IdClaims:
    """Lends the ids of ``ids``, each with the server's lock for it. Thread-safe.

    ``owner``: the state folder, which one process at a time uses. A former process's locks with this folder count as
    this process's own. ``replicas``: the statement of :func:`list_replicas`.
    """

    def __init__(self, ids: ServerIds, owner: str, replicas: str) -> None:
        self._ids = ids
        self._owner = hashlib.sha256(owner.encode()).hexdigest()[:32]
        self._replicas = replicas
        self._taking = threading.Lock()
        self._rivals: dict[int, str] = {}
        self._unlocked = ""

    def take(self, connection: Connection[Any], avoid: int) -> int:
        """Lend an id that no other reader of this server uses. ``connection`` then holds the id's lock. ``avoid``: the
        server's own id, which is not lent.

        Raises :class:`SourceUnavailable` if all ids are in use. Its message names a connection that uses one.
        """
        busy: list[int] = []
        with self._taking:
            try:
                return self._take(connection, avoid, busy)
            finally:
                for number in reversed(busy):
                    self._ids.give_back(number)

    def give_back(self, number: int) -> None:
        """Take back the id of a closed reader. The server releases the lock when it notices the closed connection."""
        self._ids.give_back(number)

    def problem(self, connection: Connection[Any]) -> Problem:
        """The problem of ids that other readers use; empty: there is none."""
        for number in tuple(self._rivals):
            holder = self._holder(connection, number)
            if holder:
                self._rivals[number] = holder
            else:
                self._rivals.pop(number, None)
        rivals = "; ".join(f"{number}: {holder}" for number, holder in sorted(self._rivals.items()))
        return (
            Problem(f"another reader uses replication ids of this log ({rivals})", _NEXT, code="log-shared")
            if rivals
            else NO_PROBLEM
        )

    # --- inside ------------------------------------------------------------------------------------------------

    def _take(self, connection: Connection[Any], avoid: int, busy: list[int]) -> int:
        replicas = self._registered(connection)
        ending = 0
        while True:
            try:
                number = self._ids.take(avoid)
            except SourceUnavailable:
                if not busy:
                    raise
                break
            busy.append(number)
            got, ours = self._claim(connection, number)
            if got and number not in replicas:
                self._rivals.pop(number, None)
                busy.remove(number)
                return number
            if got:  # registered without the lock: by a replica or an earlier release
                self._release(connection, number)
            if not got and ours:
                ending = ending or number
            else:
                self._met(connection, number)
        if ending and self._lock(connection, ending, _ENDING_S)[0]:
            busy.remove(ending)
            return ending
        used = "; ".join(f"{number}: {self._rivals[number]}" for number in busy if number in self._rivals)
        raise SourceUnavailable(
            f"all replication ids {self._ids} are in use, also by another reader ({used})"
            if used
            else f"the server has not noticed yet that former readers with the ids {self._ids} are gone",
            hint=f"a retry follows; {_NEXT}" if used else "a retry follows",
            code="log-shared",
        )

    def _claim(self, connection: Connection[Any], number: int) -> tuple[bool, bool]:
        """Take the id's lock. Returns whether that succeeded, and if not, whether a reader with this state folder has
        it."""
        try:
            got, own = self._lock(connection, number)
        except (UsageError, UnsupportedLog) as error:
            return self._goes_without(str(error)), False
        if got is None:
            return self._goes_without("GET_LOCK answers NULL"), False
        if own and not got:
            self._release(connection, number)
        return got, not own

    def _lock(self, connection: Connection[Any], number: int, wait_s: int = 0) -> tuple[bool | None, bool]:
        """Try to take two locks: the id's, and the one that marks it as this state folder's.

        ``None``: the server has no such locks.
        """
        names = (_name(number), wait_s, self._own(number), wait_s)
        with reading_answers("the lock of a replication id"):
            row = query(connection, "SELECT GET_LOCK(%s, %s) AS got, GET_LOCK(%s, %s) AS own", names)[0]
            return None if row["got"] is None else bool(row["got"]), bool(row["own"])

    def _release(self, connection: Connection[Any], number: int) -> None:
        """Release those of the id's two locks that this connection holds."""
        names = (_name(number), self._own(number))
        query(connection, "SELECT RELEASE_LOCK(%s) AS got, RELEASE_LOCK(%s) AS own", names)

    def _own(self, number: int) -> str:
        return f"{_name(number)}:{self._owner}"

    def _goes_without(self, reason: str) -> bool:
        """Warn that the server has no such locks. Its log is then read without them."""
        if not self._unlocked:
            _log.warning(
                "replication ids are not locked on this server, so another reader with the same ids is not seen: %s",
                reason,
            )
        self._unlocked = reason
        return True

    def _met(self, connection: Connection[Any], number: int) -> None:
        known = number in self._rivals
        holder = self._holder(connection, number)
        if not holder:
            return  # the connection ended meanwhile
        self._rivals[number] = holder
        if not known:
            _log.warning("another reader uses replication id %d of this log: %s. Next: %s", number, holder, _NEXT)

    def _holder(self, connection: Connection[Any], number: int) -> str:
        """The server's connection that uses the id, as far as the account can see; empty: there is none."""
        found = []
        with reading_answers("the holder of a replication id"):
            rows = self._allowed(connection, "SELECT IS_USED_LOCK(%s) AS id", (_name(number),))
            thread = rows[0]["id"] if rows else None
            if thread is not None:
                rows = self._allowed(connection, "SHOW FULL PROCESSLIST")
                where = next((f" ({row['User']}@{row['Host']})" for row in rows if row["Id"] == thread), "")
                found.append(f"connection {thread}{where}")
        name = self._registered(connection).get(number)
        if name is not None:
            found.append(f"registered as {name or 'a replica without a name'}")
        return ", ".join(found)

    def _registered(self, connection: Connection[Any]) -> dict[int, str]:
        """The host names of the connected replicas by id, as far as the account can see them."""
        rows = self._allowed(connection, self._replicas)
        with reading_answers("the server's list of replicas"):
            named = [{key.lower(): value for key, value in row.items()} for row in rows]
            return {int(row["server_id"]): str(row["host"] or "") for row in named}

    def _allowed(self, connection: Connection[Any], sql: str, args: Sequence[object] = ()) -> list[dict[str, Any]]:
        try:
            return query(connection, sql, args)
        except (UsageError, UnsupportedLog):
            return []


def _name(number: int) -> str:
    return f"wormhole-reader:{number}"


_DEFAULT_COUNT: Final = 16
_DEFAULT_FIRST: Final = 1_000_000_000
_DEFAULT_RANGES: Final = 62_500_000  # the number of ranges of sixteen ids each, up to 2 * 10^9


class ServerIds:
    """The ids ``first`` to ``last`` (inclusive), each lent to one reader at a time. Thread-safe.

    On MariaDB a second dump with the same id ends the first one. MySQL compares the replicas' uuids instead, and each
    reader has a new uuid.
    """

    def __init__(self, first: int, last: int) -> None:
        self._free = list(range(last, first - 1, -1))
        self._range = f"{first}-{last}"
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return self._range

    @classmethod
    def parse(cls, text: str, log: str) -> Self:
        """Parse ``first-last``, as in the configuration; empty: sixteen ids made from the log's name.

        Raises :class:`UsageError`."""
        if not text:
            first = _DEFAULT_FIRST + _DEFAULT_COUNT * (zlib.crc32(log.encode()) % _DEFAULT_RANGES)
            return cls(first, first + _DEFAULT_COUNT - 1)
        head, _, tail = text.partition("-")
        if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in (head, tail)):
            raise UsageError(f"server_ids = {text!r} is no range", hint='write "first-last", for example "4001-4016"')
        first, last = int(head), int(tail)
        if not 0 < first <= last < 1 << 32 or last - first >= 1 << 16:
            raise UsageError(
                f"server_ids = {text!r} is no usable range",
                hint="the ids lie between 1 and 4294967295, first before last, at most 65536 of them",
            )
        return cls(first, last)

    def take(self, avoid: int = 0) -> int:
        """Lend an id other than ``avoid`` (the server's own). Raises :class:`SourceUnavailable` if all are lent."""
        with self._lock:
            for i in range(len(self._free) - 1, -1, -1):
                if self._free[i] != avoid:
                    return self._free.pop(i)
        raise SourceUnavailable(
            f"all replication ids {self._range} are in use by readers of this publisher",
            hint="give the log a wider range with server_ids, or lower caravans.max",
            code="log-shared",
        )

    def give_back(self, server_id: int) -> None:
        """Take back the id of a closed reader. It is lent again last, because the server may not have noticed the
        end."""
        with self._lock:
            self._free.insert(0, server_id)
