"""The state of a server and of its log, read in one statement so that its parts are consistent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, Row, understood
from datastores.postgres.server.key_indexes import AT_ONCE
from datastores.postgres.server.lsn import format_lsn, parse_lsn
from datastores.postgres.sql_text import quote_literal
from wormhole.model.errors import SourceUnavailable, UnsupportedLog

__all__ = [
    "OLDEST_VERSION",
    "AnotherServer",
    "ServerState",
    "Slot",
    "check_same",
    "identity",
    "read_state",
    "record_end",
]

_IDENTITY: Final = (
    "(SELECT system_identifier FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), "
    "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
)
OLDEST_VERSION: Final = 130000
"""The oldest version that PostgreSQL maintained at this release."""

_PAGE_HEADER: Final = 24
_FILE_HEADER: Final = 40


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot. ``restart``: the server keeps and decodes its log from this place on. ``confirmed``: the
    server sends its log from this place on. Both are 0 if the slot has lost its log.

    ``wal_status``: ``reserved``, ``extended``, ``unreserved`` or ``lost``. ``safe_bytes``: how much more log may be
    written before the slot is lost; ``None``: no limit. ``catalog_age``: transactions since the oldest catalogue row
    that the slot keeps. ``failover``: whether standbys may have the slot too; ``None``: the server lacks this feature.
    ``invalid``: why the server invalidated the slot (version 17 and later).
    """

    name: str
    plugin: str
    database: str
    temporary: bool
    active_pid: int
    restart: int
    confirmed: int
    wal_status: str
    safe_bytes: int | None
    catalog_age: int = 0
    failover: bool | None = None
    invalid: str = ""

    @property
    def lost(self) -> bool:
        """Whether the server removed log that the slot needed."""
        return self.wal_status == "lost" or not self.restart


@dataclass(frozen=True, slots=True)
class ServerState:
    """``system``: the cluster's identifier, which a copy of its files shares. ``timeline``: the timeline that the
    server writes. ``end``: the end of the last inserted record. ``flushed``: the end of the log that a walsender may
    send.

    ``publication_oid``: distinguishes publications of the same name. ``slots``: the log's slots, by name. ``standbys``:
    the number of standbys with a slot. ``keep_bytes``: ``max_slot_wal_keep_size``; 0: no limit. ``sender_timeout_s``:
    ``wal_sender_timeout``; 0: none. ``page_bytes``: size of a page of the log.

    ``started``: when the server started, in microseconds since 1970. It distinguishes the server from a copy of its
    files, which has the same identifier and timeline and may run beside it. ``session``: the process of the session
    that read the state, which no crash survives. ``unlogged_keys``: by table OID the OID of the primary key, for keys
    that the log does not contain (REPLICA IDENTITY FULL and NOTHING).
    """

    system: str
    timeline: int
    end: int
    flushed: int
    version: int
    wal_level: str
    keep_bytes: int
    sender_timeout_s: float
    publication: bool
    slots: dict[str, Slot] = field(default_factory=dict)
    standbys: int = 0
    publication_oid: int = 0
    page_bytes: int = 8192
    started: str = ""
    session: int = 0
    unlogged_keys: Mapping[int, int] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str, str]:
        """The result of :func:`identity` for this server."""
        return self.system, f"{self.timeline:08X}", self.started

    def __str__(self) -> str:
        return f"timeline {self.timeline} of system {self.system}, which ends at {format_lsn(self.end)}"


class AnotherServer(SourceUnavailable):
    """The address now leads to another server."""


def identity(connection: Connection) -> Row:
    """The server's system identifier, its timeline in eight digits, and its start time. Raises as
    :meth:`~datastores.postgres.server.connection.Connection.query`, also for a standby.
    """
    (found,) = connection.query(f"SELECT {_IDENTITY}")
    return found


def check_same(connection: Connection, address: Address, state: ServerState) -> None:
    """Raise :class:`AnotherServer` if the session is on another server than the one in ``state``, or if that server
    restarted since."""
    with understood(address):
        system, timeline, _ = found = identity(connection)
    if found != state.identity:
        raise AnotherServer(
            f"{address}: another server answers than a moment before, or it was restarted (timeline "
            f"{int(timeline or '0', 16)} of system {system}; it was {state})",
            hint="a retry follows",
        )


def read_state(connection: Connection, publication: str, slots: Mapping[str, str]) -> ServerState:
    """The present state. ``slots``: the slots' names on the server, by their keys in the result.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`, and
    :class:`~wormhole.model.errors.UnsupportedLog` for a server whose log cannot be read with any settings.
    """
    if connection.version < OLDEST_VERSION:
        raise UnsupportedLog(
            f"the server's version is {connection.version // 10000}, which cannot be tailed",
            hint=f"upgrade it to {OLDEST_VERSION // 10000} or later",
        )
    if connection.query("SELECT pg_is_in_recovery()") == [("t",)]:
        # A transient error: an address may lead to a server that is about to be promoted.
        raise SourceUnavailable(
            "the server is a standby, whose log is not read",
            hint="name the primary in the log's source; a retry follows",
            code="copy-not-ready",
        )
    (row,) = connection.query(
        f"SELECT {_IDENTITY}, pg_backend_pid(), pg_current_wal_insert_lsn(), "  # noqa: S608
        "pg_current_wal_flush_lsn(), current_setting('wal_block_size'), "
        "(SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'), current_setting('wal_level'), "
        "(SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), "
        "(SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'), "
        f"(SELECT oid FROM pg_publication WHERE pubname = {quote_literal(publication)}), "
        "(SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical'), "
        "(SELECT string_agg(format('%s %s', conrelid, k.oid), ' ') FROM pg_constraint k JOIN pg_class c "
        "ON c.oid = conrelid JOIN pg_index i ON i.indexrelid = conindid "
        f"WHERE contype = 'p' AND relreplident IN ('f', 'n') AND {AT_ONCE})"
    )
    system, timeline, started, session, end, flushed, block, segment, wal_level, *others = row
    keep_mb, timeout_ms, oid, standbys, keys = others
    numbers = tuple(map(int, (keys or "").split()))
    return ServerState(
        system=system or "",
        timeline=int(timeline or "0", 16),
        end=record_end(parse_lsn(end or ""), int(block or 0), int(segment or 0)),
        flushed=parse_lsn(flushed or ""),
        version=connection.version,
        wal_level=wal_level or "",
        keep_bytes=max(0, int(keep_mb or 0)) << 20,
        sender_timeout_s=int(timeout_ms or 0) / 1000,
        publication=oid is not None,
        standbys=int(standbys or 0),
        slots=_read_slots(connection, slots),
        publication_oid=int(oid or 0),
        page_bytes=int(block or 0),
        unlogged_keys=dict(zip(numbers[::2], numbers[1::2], strict=True)),
        started=started or "",
        session=int(session or 0),
    )


def record_end(next_record: int, block: int, segment: int) -> int:
    """The end of the last record. ``next_record``: the beginning of the next one.

    At the beginning of a page (of ``block`` bytes) or a file (of ``segment`` bytes), a header separates the two.
    """
    header = _FILE_HEADER if next_record % segment < block else _PAGE_HEADER
    return next_record - header if next_record % block == header else next_record


def _read_slots(connection: Connection, names: Mapping[str, str]) -> dict[str, Slot]:
    newer = "failover, invalidation_reason" if connection.version >= 170000 else "NULL, NULL"
    rows = connection.query(
        "SELECT slot_name, plugin, database, temporary, active_pid, restart_lsn, confirmed_flush_lsn, wal_status, "  # noqa: S608
        f"safe_wal_size, age(catalog_xmin), {newer} FROM pg_replication_slots "
        f"WHERE slot_name IN ({', '.join(map(quote_literal, names.values()))})"
    )
    found = {slot.name: slot for slot in map(_slot, rows)}
    return {role: found[name] for role, name in names.items() if name in found}


def _slot(row: Row) -> Slot:
    name, plugin, database, temporary, pid, restart, confirmed, status, safe, age, failover, invalid = row
    return Slot(
        name=name or "",
        plugin=plugin or "",
        database=database or "",
        temporary=temporary == "t",
        active_pid=int(pid or 0),
        restart=parse_lsn(restart) if restart else 0,
        confirmed=parse_lsn(confirmed) if confirmed else 0,
        wal_status=status or "lost",
        safe_bytes=None if safe is None else int(safe),
        catalog_age=int(age or 0),
        failover=None if failover is None else failover == "t",
        invalid=invalid or "",
    )
