"""``wormholectl doctor`` for a PostgreSQL database. It only reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from datastores.postgres.doctor.publication import (
    identity_findings,
    named_values_findings,
    publication_findings,
    unlogged_partition_findings,
)
from datastores.postgres.doctor.server_objects import find_names
from datastores.postgres.doctor.slots import budget_findings, slot_findings
from datastores.postgres.history.proof import PROOF_BYTES, checksum_of_log
from datastores.postgres.log import slots
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, connect
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import OLDEST_VERSION, ServerState, read_state
from datastores.postgres.server.url import EXPOSED
from datastores.postgres.sql_text import quote_identifier
from datastores.postgres.tables.identities import TableIdentity, named, read_tables
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, LogGrowth, Report, SeenTable, Severity

__all__ = ["NEWEST_VERSION", "check", "measure_growth", "way_findings"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM
_TIMEOUT_S: Final = 60.0
NEWEST_VERSION: Final = 18
"""The newest version of the server that this release knows."""


def check(address: Address) -> Report:
    """Examine the database for a publisher that uses this account.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if it cannot be reached, and
    :class:`~wormhole.model.errors.UsageError` for a wrong account or certificate.
    """
    connection = connect(address, timeout_s=_TIMEOUT_S)
    try:
        address = find_names(connection, address)
        names = {name: name for name in (slots.held_slot(address.slot), slots.lead_slot(address.slot))}
        state = read_state(connection, address.publication, names)
        tables = read_tables(connection, address.publication)
        report = Report(f"{address.kind}://{address}", _facts(connection, state, address))
        report.tables += [SeenTable(one.schema, one.name, one.key_columns, one.rows) for one in tables]
        report.growth = measure_growth(connection)
        report.findings += _version(state)
        report.findings += _log_settings(state)
        replicates = _may_replicate(connection)
        report.findings += _privileges(address, tables, replicates=replicates)
        report.findings += _room(connection, state)
        report.findings += publication_findings(connection, state, address, tables)
        report.findings += identity_findings(tables, address.publication)
        report.findings += named_values_findings(connection)
        report.findings += unlogged_partition_findings(connection)
        report.findings += slot_findings(connection, state, address)
        report.findings += budget_findings(connection, state)
        report.findings += _sessions(state, address) if replicates else ()
        report.findings += way_findings(connection, address)
    finally:
        connection.close()
    return report


def _facts(connection: Connection, state: ServerState, address: Address) -> dict[str, str]:
    version = connection.version
    return {
        "server": f"PostgreSQL {version // 10000}.{version % 10000}",
        "system": f"{state.system}, timeline {state.timeline}",
        "account": address.user,
        "connection": f"{'socket' if address.socket else 'TCP'}, {'TLS' if connection.encrypted else 'without TLS'}",
        "log ends at": format_lsn(state.end),
        "publication": address.publication,
        "slots": f"{slots.held_slot(address.slot)}, {slots.lead_slot(address.slot)}",
    }


def _version(state: ServerState) -> Iterator[Finding]:
    version = state.version // 10000
    if version > NEWEST_VERSION:
        yield Finding(
            "version",
            WARN,
            f"PostgreSQL {version} is newer than this release of Wormhole, which knows "
            f"{OLDEST_VERSION // 10000} to {NEWEST_VERSION}",
            "new features of its log may halt a flow, with a message that names them",
            "upgrade Wormhole (docs/upgrade.md)",
        )


def _log_settings(state: ServerState) -> Iterator[Finding]:
    if state.wal_level == "logical":
        yield Finding("wal_level", OK, "the log holds the rows (wal_level=logical)")
    else:
        yield Finding(
            "wal_level",
            PROBLEM,
            f"wal_level={state.wal_level}: the log does not hold the rows",
            "nothing can be read from it",
            "set it and restart the server:\nALTER SYSTEM SET wal_level = logical;",
        )


def _may_replicate(connection: Connection) -> bool:
    rows = connection.query("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
    return rows == [("t",)]


def _privileges(address: Address, tables: list[TableIdentity], *, replicates: bool) -> Iterator[Finding]:
    user = quote_identifier(address.user)
    if replicates:
        yield Finding("replication", OK, f"{address.user} may read the log")
    else:
        yield Finding(
            "replication",
            PROBLEM,
            f"{address.user} lacks REPLICATION",
            "the server sends it no log",
            f"give it:\nALTER ROLE {user} REPLICATION;",
        )
    hidden = [one for one in tables if one.published and not one.readable]
    if hidden:
        schemas = sorted({one.schema for one in hidden})
        yield Finding(
            "select",
            WARN,
            f"{address.user} lacks SELECT on {named(hidden)}",
            "their updates arrive, and their existing rows cannot be read",
            "give it:\n"
            + "\n".join(
                f"GRANT USAGE ON SCHEMA {quote_identifier(schema)} TO {user};\n"
                f"GRANT SELECT ON ALL TABLES IN SCHEMA {quote_identifier(schema)} TO {user};"
                for schema in schemas
            ),
        )


def _room(connection: Connection, state: ServerState) -> Iterator[Finding]:
    """Findings on the limits of sessions and slots. Each reader needs a session and a slot, the log two more slots."""
    missing = 2 - len(state.slots)
    for what, setting, used, needed in (
        ("replication slots", "max_replication_slots", "SELECT count(*) FROM pg_replication_slots", 1 + missing),
        ("walsenders", "max_wal_senders", "SELECT count(*) FROM pg_stat_replication", 1),
    ):
        ((most, taken),) = connection.query(f"SELECT current_setting('{setting}'), ({used})")
        free = int(most or 0) - int(taken or 0)
        if free >= needed + 3:
            yield Finding(setting, OK, f"{free} of {most} {what} are free")
            continue
        yield Finding(
            setting,
            PROBLEM if free < needed else WARN,
            f"{free} of {most} {what} are free",
            "each caravan reads with one of its own: up to caravans.max, 4 by default",
            f"raise it and restart the server:\nALTER SYSTEM SET {setting} = {int(most or 0) + 10};",
        )


def _sessions(state: ServerState, address: Address) -> Iterator[Finding]:
    """Findings on walsender sessions: whether the server starts one, and whether it sends the log's own bytes."""
    try:
        connect(address, walsender=True, timeout_s=_TIMEOUT_S).close()
    except WormholeError as error:
        yield Finding(
            "walsender",
            PROBLEM,
            f"the server begins no session that sends its log: {error.message}",
            "nothing can be read",
            error.hint or "",
        )
        return
    try:
        end = state.flushed & ~0xFFF
        checksum_of_log(address, state, state.timeline, end - PROOF_BYTES, end)
    except WormholeError as error:
        yield Finding(
            "log_bytes",
            WARN,
            f"the server does not send the bytes of its log: {error.message}",
            "while only other databases write, the slots cannot follow; only the last transaction of this one shows "
            "that a copy was restored",
            "let the account start a walsender (REPLICATION, pg_hba.conf)",
        )


def way_findings(connection: Connection, address: Address) -> Iterator[Finding]:
    """Findings on the connection to the server: passwords and TLS."""
    for remark in address.remarks:
        yield Finding("password", WARN, remark, "a user who reads it may read the whole log", "make it private")
    if address.exposed and address.password:
        yield Finding(
            "login",
            WARN,
            f"unverified_server={EXPOSED}: the password goes to whatever answers at {address.where}",
            "a process that answers in place of the database gets the password, and with it the whole log",
            "let the server ask for scram-sha-256, or write ?sslmode=verify-full&sslrootcert=/path/of/ca.pem "
            "in its place",
        )
    if address.stays_here:
        yield Finding("tls", OK, "the connection stays on this host")
    elif not connection.encrypted:
        yield Finding(
            "tls",
            WARN,
            "the connection is not encrypted",
            "every row crosses the network as plain text",
            "let the server offer TLS (ssl = on), and write ?sslmode=verify-full&sslrootcert=/path/of/ca.pem behind "
            "the URL",
        )
    elif address.verifies:
        yield Finding("tls", OK, f"the connection is encrypted, and the certificate is checked ({address.sslmode})")
    else:
        yield Finding(
            "tls",
            WARN,
            f"the connection is encrypted, and the server's certificate is not checked (sslmode={address.sslmode})",
            "a machine in between could pass for the server",
            "write ?sslmode=verify-full&sslrootcert=/path/of/ca.pem behind the URL",
        )


_COUNTED_FROM: Final = 140000
"""The first version with ``pg_stat_wal``."""
_LEAST_S: Final = 600.0


def measure_growth(connection: Connection) -> LogGrowth:
    """The log's growth since the server's statistics were reset. Raises as
    :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    if connection.version < _COUNTED_FROM:
        return LogGrowth(unknown="PostgreSQL 13 does not count what it writes to its log")
    rows = connection.query("SELECT wal_bytes, extract(epoch FROM now() - stats_reset) FROM pg_stat_wal")
    written, seconds = (float(value or 0) for value in rows[0]) if rows else (0.0, 0.0)
    if seconds < _LEAST_S:
        return LogGrowth(unknown="its statistics (pg_stat_wal) are younger than ten minutes")
    return LogGrowth(int(written), seconds, "pg_stat_wal, since its statistics were reset")
