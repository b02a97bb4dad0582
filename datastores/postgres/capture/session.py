"""Queries the objects in the database for the state of the log, its transactions and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from datastores.postgres.capture.statements import OPENING
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, Row, ServerError
from datastores.postgres.sql_text import quote_identifier, quote_literal
from wormhole.model.errors import UnsupportedLog

__all__ = [
    "CUT_S",
    "OLDEST_VERSION",
    "LogState",
    "Transaction",
    "changes",
    "find",
    "in_use",
    "installed",
    "read_state",
    "show_in_use",
    "transactions",
]

OLDEST_VERSION: Final = 140000
"""`CREATE OR REPLACE TRIGGER` came with PostgreSQL 14."""
CUT_S: Final = 600.0
"""The time limit of a call of `cut`, which orders all changes since the last call. A long pause leaves many."""
_LOCK: Final = 0x57484C45
"""The first key of the advisory locks of readers."""
_MISSING: Final = frozenset({"3F000", "42P01", "42883"})
_DENIED: Final = "42501"
_US: Final = "(extract(epoch FROM {}) * 1000000)::bigint"
_COLUMNS: Final = f"number, place, xid, changes, bytes, {_US.format('at')}, checksum, gap::int"


@dataclass(frozen=True, slots=True)
class LogState:
    """``identity``: the installation's identity. ``number``, ``place``, ``at_us``: those of the last transaction.
    ``floor_…``: those of the last removed transaction. ``uncut``: some changes have no numbered transaction yet, or
    transactions are open. ``bytes``: the size of the change table. ``free_bytes``: the unused bytes of that size.
    ``stopped``: nothing is recorded. ``opening``: recording is about to begin again. ``checksum``: the requested
    transaction's; ``None``: the log does not have it.
    """

    identity: str
    number: int
    place: int
    at_us: int
    floor_number: int
    floor_place: int
    floor_at_us: int
    floor_checksum: int
    most_bytes: int
    bytes: int
    free_bytes: int
    uncut: bool
    stopped: bool
    opening: bool
    checksum: int | None

    def proves(self, number: int) -> int | None:
        """The checksum of ``number``, the requested transaction; ``None``: the log does not have it."""
        return self.floor_checksum if number == self.floor_number else self.checksum


@dataclass(frozen=True, slots=True)
class Transaction:
    """``place``: the place after the transaction. ``gap``: it stands for changes that were not recorded."""

    number: int
    place: int
    xid: int
    changes: int
    bytes: int
    at_us: int
    checksum: int
    gap: bool

    @classmethod
    def of(cls, row: Row) -> Transaction:
        """The transaction in a row of `_COLUMNS`."""
        number, place, xid, changes, size, at_us, checksum, gap = map(int, row)  # type: ignore[arg-type]
        return cls(number, place, xid, changes, size, at_us, checksum, bool(gap))


def show_in_use(connection: Connection, schema: str) -> None:
    """Take the lock that shows that the changes are read, until the session ends."""
    connection.query(f"SELECT pg_advisory_lock_shared({_LOCK}, hashtext({quote_literal(schema)}))")


def in_use(schema: str) -> str:
    """The condition on ``pg_locks`` that selects the sessions that read the changes."""
    return f"l.classid = {_LOCK} AND l.objid = hashtext({quote_literal(schema)})::bigint & 4294967295"


@contextmanager
def installed(address: Address, schema: str) -> Iterator[None]:
    """Turn the server's refusals in the block into errors about the installation."""
    try:
        yield
    except ServerError as error:
        if error.sqlstate in _MISSING:
            raise UnsupportedLog(
                f"{address}: no changes are recorded in the schema {schema} ({error.message:.200})",
                hint="run `wormholectl capture install`",
                code="objects-missing",
            ) from None
        if error.sqlstate == _DENIED:
            raise UnsupportedLog(
                f"{address}: the account may not use the schema {schema} ({error.message:.200})",
                hint="use the account that ran `wormholectl capture install`",
                code="account-lacks-rights",
            ) from None
        raise


def read_state(connection: Connection, schema: str, number: int = -1) -> LogState:
    """The state of the log, and the checksum of transaction ``number``.

    Raises :class:`~wormhole.model.errors.UnsupportedLog` for a copy of another database.
    """
    s = quote_identifier(schema)
    opening = ", ".join(map(quote_literal, OPENING))
    ((system, here, *values, identity, checksum),) = connection.query(
        f"SELECT c.system, (SELECT system_identifier FROM pg_control_system()) || ':' || (SELECT oid FROM pg_database "  # noqa: S608
        f"WHERE datname = current_database()), c.number, c.place, {_US.format('c.at')}, c.floor_number, c.floor_place, "
        f"{_US.format('c.floor_at')}, c.floor_checksum, c.most_bytes, pg_total_relation_size('{s}.change'), "
        "c.free_bytes, "
        f"(c.torn IS NOT NULL OR EXISTS (SELECT FROM {s}.change h WHERE h.xid >= pg_snapshot_xmax(c.snapshot) "
        f"OR h.xid IN (SELECT pg_snapshot_xip(c.snapshot))))::int, (g.last_value - 1), "
        f"(c.torn::text IN ({opening}))::int, c.id, "
        f"(SELECT t.checksum FROM {s}.transaction t WHERE t.number = {number}) "
        f"FROM {s}.capture c, {s}.gate g"
    )
    if system != here:
        raise UnsupportedLog(
            f"the schema {schema} was installed in the database {system}, and this one is {here}: it is a copy, whose "
            "numbers of transactions have another meaning",
            hint="run `wormholectl capture remove` and `wormholectl capture install`; the log then begins anew",
            code="log-diverged",
        )
    n, place, at, f_n, f_place, f_at, f_sum, most, size, free, uncut, stopped, opening_ = (
        int(value or 0) for value in values
    )
    return LogState(
        identity or "",
        n,
        place,
        at,
        f_n,
        f_place,
        f_at,
        f_sum,
        most,
        size,
        free,
        bool(uncut),
        bool(stopped),
        bool(opening_),
        None if checksum is None else int(checksum),
    )


def transactions(connection: Connection, schema: str, after: int, most: int) -> tuple[LogState, list[Transaction]]:
    """The state of the log with transaction ``after``, and the next ones, in one snapshot."""
    s = quote_identifier(schema)
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        state = read_state(connection, schema, after)
        rows = connection.query(
            f"SELECT {_COLUMNS} FROM {s}.transaction WHERE number > {after} ORDER BY number LIMIT {most}"  # noqa: S608
        )
    finally:
        if connection.is_open:
            connection.query("COMMIT")
    return state, [Transaction.of(row) for row in rows]


def find(connection: Connection, schema: str, condition: str) -> Transaction | None:
    """The last transaction that meets the SQL condition."""
    s = quote_identifier(schema)
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM {s}.transaction WHERE {condition} ORDER BY number DESC LIMIT 1"  # noqa: S608
    )
    return Transaction.of(rows[0]) if rows else None


def changes(
    connection: Connection, schema: str, among: Sequence[Transaction], after: tuple[int, int], most: int
) -> Iterator[list[bytes]]:
    """The lines of the changes of these transactions, in order. ``after``: with a single transaction, the place and
    number of its last change that was read. ``most``: the most lines.
    """
    s = quote_identifier(schema)
    place, number = after
    rest = f"AND (c.place > {place} OR c.place = {place} AND c.number < {number})" if number else ""
    return connection.copy_rows(
        f"COPY (SELECT t.number, c.place, c.number, c.layout, c.op, c.old, c.new "  # noqa: S608
        f"FROM {s}.transaction t JOIN {s}.change c ON c.xid = t.xid "
        f"WHERE t.number BETWEEN {among[0].number} AND {among[-1].number} {rest} "
        f"ORDER BY t.number, c.place, c.number DESC LIMIT {most}) TO STDOUT",
        timeout_s=CUT_S,
    )
