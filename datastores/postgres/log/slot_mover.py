"""Advances the two slots in a session of its own, because a move may wait until the server has decoded much log.

The address may now lead to another server than the one whose log is read. So the session queries the server's identity
before each move.

Only one publisher moves the slots of a log. Otherwise a publisher would move them past another one's datamarkers, and
the server would no longer send the log from there. The session holds an advisory lock of the database, derived from the
slots' name. If publishers on several hosts may own the log, the session of a former owner may outlive its host. The
present owner ends that session.

A server may let its slots wait for its standbys. Then a slot is moved only as far as every standby has the log. A move
beyond that place would wait, without a message, until the standby returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

from datastores.postgres.log import slots
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.state import ServerState, identity
from wormhole.model.errors import WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["SlotMover", "movers", "moving"]

_log = logging.getLogger(__name__)

_CLASS: Final = int.from_bytes(b"worm")
_WAITS_SINCE: Final = 140000
"""From this version on, ``pg_terminate_backend`` can wait until the session has ended."""
_ENDS_MS: Final = 5000


def movers(connection: Connection, name: str) -> str:
    """The sessions that move the slots with the prefix ``name``, in words; empty: none. Raises as
    :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    return _named(_sessions(connection, name))


def moving(connection: Connection, name: str) -> set[int]:
    """The process ids on the server of the sessions that move these slots. Raises as :func:`movers`."""
    return {pid for pid, _ in _sessions(connection, name)}


def _sessions(connection: Connection, name: str) -> list[tuple[int, str]]:
    """Process id and address of the sessions that hold the lock."""
    found = connection.query(
        "SELECT pid, client_addr FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND "  # noqa: S608
        f"database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = {_CLASS} AND "
        f"objid = {_lock_of(name) & 0xFFFFFFFF} AND granted"
    )
    return [(int(pid or 0), address or "") for pid, address in found]


def _named(sessions: list[tuple[int, str]]) -> str:
    return ", ".join(f"process {pid} of the server, from {address or 'its own host'}" for pid, address in sessions)


def _lock_of(name: str) -> int:
    return int.from_bytes(crc32(name.encode()).to_bytes(4), signed=True)


class SlotMover:
    """Used by one thread, except :meth:`cancel`.

    ``name``: the prefix of the slots' names. ``evicts``: whether this publisher may end another one's session that
    moves the slots. ``problem``: why the slots are not moved.
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], evicts: Callable[[], bool] = lambda: False
    ) -> None:
        self._name = name
        self._lock = _lock_of(name)
        self._connect = connect
        self._evicts = evicts
        self._connection: Connection | None = None
        self._owner = False
        self.problem = NO_PROBLEM

    def move(self, wanted: Mapping[str, int], state: ServerState) -> None:
        """Advance each slot to its place in ``wanted``, unless it is already there. The places are in the log of
        ``state``. Never raises.
        """
        try:
            problem = self._move(wanted, state)
        except WormholeError as error:
            problem = Problem(
                f"the replication slots cannot be moved on: {error.message}", error.hint or "", code=error.code
            )
        except ValueError as error:
            problem = Problem(
                f"the replication slots cannot be moved on: the answers are not those of a PostgreSQL server ({error})",
                "check that the address leads to one, with nothing in between",
                code="peer-not-database",
            )
        if problem and problem != self.problem:
            _log.warning("%s", problem)
        self.problem = problem

    def cancel(self) -> None:
        """End a move in progress, from another thread."""
        connection = self._connection
        if connection is not None:
            connection.cancel()

    def close(self) -> None:
        """End the session. Then another publisher may move the slots."""
        connection, self._connection, self._owner = self._connection, None, False
        if connection is not None:
            connection.close()

    def _move(self, wanted: Mapping[str, int], state: ServerState) -> Problem:
        if self._connection is None or not self._connection.is_open:
            self.close()
            self._connection = self._connect()
        found = identity(self._connection)
        if found != state.identity:
            self.close()
            there = ", ".join(map(str, found))
            return Problem(
                f"the replication slots {self._name}_* stay where they are: the session that moves them is on another "
                f"server (system, timeline and start: {there}) than the log, which is {state}",
                "it is opened again; if this stays, see that the address leads to one server",
                code="peer-not-database",
            )
        if not self._owner:
            self._owner = self._takes_lock(self._connection) or self._takes_over(self._connection)
        if not self._owner:
            return self._rival(self._connection)
        problem = NO_PROBLEM
        standbys = slots.awaited(self._connection) if any(slot.failover for slot in state.slots.values()) else []
        for name, whole in wanted.items():
            slot = state.slots.get(name)
            if slot is None or slot.lost or whole <= slot.confirmed:
                continue
            place = whole
            if slot.failover:
                place = min((whole, *(one.has for one in standbys)))
                problem = problem or slots.awaited_problem(one for one in standbys if one.has < whole)
            if place > slot.confirmed and not slots.advance(self._connection, slot, place):
                problem = Problem(
                    f"the replication slot {name} cannot be moved on, for another program reads it",
                    "find out which, and end it: SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "  # noqa: S608
                    f"WHERE slot_name = '{name}'",
                    code="slot-taken",
                )
        return problem

    def _takes_lock(self, connection: Connection) -> bool:
        return connection.query(f"SELECT pg_try_advisory_lock({_CLASS}, {self._lock})") == [("t",)]

    def _takes_over(self, connection: Connection) -> bool:
        """End the sessions that hold the lock, if this publisher may. Returns whether it then holds the lock.

        The other publisher's readers are not ended. Each reader has a temporary slot of its own, which ends with the
        reader's session and delays no other reader.
        """
        if not self._evicts():
            return False
        sessions = _sessions(connection, self._name)
        if sessions:
            _log.warning(
                "this publisher owns the log now: what another one has open to move the replication slots %s_* is "
                "ended (%s)",
                self._name,
                _named(sessions),
            )
        for pid, _ in sessions:
            waits = f", {_ENDS_MS}" if connection.version >= _WAITS_SINCE else ""
            connection.query(f"SELECT pg_terminate_backend({pid}{waits})")
        return self._takes_lock(connection)

    def _rival(self, connection: Connection) -> Problem:
        whose = movers(connection, self._name)
        return Problem(
            f"another publisher moves the replication slots {self._name}_*{f' ({whose})' if whose else ''}: the "
            "server's log is kept by its datamarkers, not by those of this one",
            "stop one of the two, or give one a publication and slots of its own (?slot=NAME behind the URL)",
            code="log-shared",
        )
