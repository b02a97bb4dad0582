"""``wormholectl doctor`` for a PostgreSQL database. It only reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from publisher.sources.postgres import slots
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.connection import Connection, connect, quote_identifier, quote_literal
from publisher.sources.postgres.lsn import format_lsn
from publisher.sources.postgres.server_state import ServerState, Slot, read_state
from publisher.sources.postgres.wal_bytes import PROOF_BYTES, checksum_of_log
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, Report, SeenTable, Severity

__all__ = ["check"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM
_TIMEOUT_S: Final = 60.0
_NAMED: Final = 8  # tables in one finding
_OLD_CATALOGUE: Final = 100_000_000  # transactions: half of what autovacuum_freeze_max_age allows
_FAILOVER_SINCE: Final = 170000


@dataclass(frozen=True, slots=True)
class _Table:
    """``identity``: ``d`` default, ``n`` nothing, ``f`` full, ``i`` an index. ``key_columns``: of the log's key."""

    schema: str
    name: str
    identity: str
    key_columns: int
    rows: int
    published: bool
    readable: bool

    @property
    def sql_name(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


def check(address: Address) -> Report:
    """Examine the database for a publisher that uses this account.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` when it cannot be reached,
    :class:`~wormhole.model.errors.UsageError` for a wrong account or certificate.
    """
    names = {name: name for name in (slots.held_slot(address.slot), slots.lead_slot(address.slot))}
    connection = connect(address, timeout_s=_TIMEOUT_S)
    try:
        state = read_state(connection, address.publication, names)
        tables = _tables(connection, address.publication)
        report = Report(f"{address.kind}://{address}", _facts(connection, state, address))
        report.tables += [SeenTable(one.schema, one.name, one.key_columns, one.rows) for one in tables]
        report.findings += _log_settings(state)
        report.findings += _privileges(connection, address, tables)
        report.findings += _room(connection, state)
        report.findings += _publication(state, address, tables)
        report.findings += _identities(tables)
        report.findings += _slots(state, address)
        report.findings += _budget(state)
        report.findings += _proof(state, address)
        report.findings += _way(connection, address)
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


def _privileges(connection: Connection, address: Address, tables: list[_Table]) -> Iterator[Finding]:
    ((replicates,),) = connection.query("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
    user = quote_identifier(address.user)
    if replicates == "t":
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
            f"{address.user} lacks SELECT on {_named(hidden)}",
            "their updates arrive, and their existing rows cannot be read",
            "give it:\n"
            + "\n".join(
                f"GRANT USAGE ON SCHEMA {quote_identifier(schema)} TO {user};\n"
                f"GRANT SELECT ON ALL TABLES IN SCHEMA {quote_identifier(schema)} TO {user};"
                for schema in schemas
            ),
        )


def _room(connection: Connection, state: ServerState) -> Iterator[Finding]:
    """A session with a slot for each reader, and the two that are kept."""
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


def _publication(state: ServerState, address: Address, tables: list[_Table]) -> Iterator[Finding]:
    name = address.publication
    if not state.publication:
        yield Finding(
            "publication",
            PROBLEM,
            f"there is no publication {name}",
            "the server sends only what a publication lists",
            f"make it before the slots, or name another one (?publication=NAME):\n"
            f"{slots.statement_of_publication(name)}",
        )
        return
    left_out = [one for one in tables if not one.published]
    if not any(one.published for one in tables):
        yield Finding(
            "publication",
            PROBLEM if left_out else WARN,
            f"the publication {name} has no table",
            "no update is delivered",
            f"add what is wanted:\nALTER PUBLICATION {quote_identifier(name)} ADD TABLE "
            + ", ".join(one.sql_name for one in left_out[:_NAMED] or ())
            + ";"
            if left_out
            else "create tables, or look whether this is the right database",
        )
    elif left_out:
        yield Finding(
            "publication",
            WARN,
            f"the publication {name} leaves out {_named(left_out)}",
            "their updates are not delivered",
            f"if they are wanted:\nALTER PUBLICATION {quote_identifier(name)} ADD TABLE "
            f"{', '.join(one.sql_name for one in left_out[:_NAMED])};",
        )
    else:
        yield Finding("publication", OK, f"the publication {name} has every table")


def _identities(tables: list[_Table]) -> Iterator[Finding]:
    """Without a key in the log, the server refuses UPDATE and DELETE of a published table, or logs no key."""
    for identity, why in (
        ("d", "they have no primary key, and REPLICA IDENTITY DEFAULT"),
        ("n", "their REPLICA IDENTITY is NOTHING"),
        ("i", "the index of their REPLICA IDENTITY is gone"),
    ):
        found = [one for one in tables if one.published and one.identity == identity and not one.key_columns]
        if found:
            first = found[0]
            yield Finding(
                "replica_identity",
                PROBLEM,
                f"the log has no key for {_named(found)}: {why}",
                "the server refuses every UPDATE and DELETE of them while they are published",
                f"give each a primary key, or log whole rows:\nALTER TABLE {first.sql_name} REPLICA IDENTITY FULL;",
            )
    full = [one for one in tables if one.published and one.identity == "f" and not one.key_columns]
    if full:
        yield Finding(
            "replica_identity",
            WARN,
            f"{_named(full)} {'has' if len(full) == 1 else 'have'} no primary key (REPLICA IDENTITY FULL)",
            "the updates of each are one shard, without a key",
            "give them a primary key",
        )


def _slots(state: ServerState, address: Address) -> Iterator[Finding]:
    try:
        both = slots.check(state, address.slot, address.database)
    except WormholeError as error:
        yield Finding("slots", PROBLEM, error.message, "the server keeps no log for the publisher", error.hint or "")
        return
    yield Finding("slots", OK, f"the log is kept from {format_lsn(both[0].restart)} on")
    for slot in both:
        if slot.active_pid:
            yield Finding(
                "slot_taken",
                PROBLEM,
                f"somebody reads the slot {slot.name} (process {slot.active_pid})",
                "the publisher reads copies only: another program moves the slot beyond what was delivered",
                f"let that program use a slot of its own; to end it:\nSELECT pg_terminate_backend({slot.active_pid});",
            )
        if slot.catalog_age > _OLD_CATALOGUE:
            yield Finding(
                "catalog_xmin",
                WARN,
                f"{slot.name} keeps catalogue rows of the last {slot.catalog_age} transactions",
                "the catalogues grow, and vacuum cannot freeze them",
                "see which flow is furthest behind (`wormholectl flows`)",
            )
    if state.version >= _FAILOVER_SINCE:
        yield from _failover(both)


def _failover(both: tuple[Slot, Slot]) -> Iterator[Finding]:
    unsynced = [slot.name for slot in both if slot.synced is False]
    if unsynced:
        yield Finding(
            "failover",
            WARN,
            f"standbys are not given the slots {' and '.join(unsynced)}",
            "after a failover the log of the new primary begins anew, and what was not delivered is reported as lost",
            "where there is a standby: set sync_replication_slots there, and make the slots with failover => true",
        )


def _budget(state: ServerState) -> Iterator[Finding]:
    if not state.keep_bytes:
        yield Finding(
            "max_slot_wal_keep_size",
            WARN,
            "the server keeps its log for the slots without a limit",
            "a publisher that is down, or a flow that stands, fills the server's disk",
            "set a limit that its disk has room for; beyond it flows lose log, and are told:\n"
            "ALTER SYSTEM SET max_slot_wal_keep_size = '64GB';\nSELECT pg_reload_conf();",
        )
        return
    safe = [slot.safe_bytes for slot in state.slots.values() if slot.safe_bytes is not None]
    yield Finding(
        "max_slot_wal_keep_size",
        OK,
        f"the server keeps up to {state.keep_bytes >> 20} MiB of log for the slots"
        + (f", {max(0, min(safe)) >> 20} MiB more may be written until the first is lost" if safe else ""),
    )


def _proof(state: ServerState, address: Address) -> Iterator[Finding]:
    try:
        end = state.flushed & ~0xFFF
        checksum_of_log(address, state.timeline, end - PROOF_BYTES, end)
    except WormholeError as error:
        yield Finding(
            "log_bytes",
            WARN,
            f"the server does not send the bytes of its log: {error.message}",
            "while only other databases write, the slots cannot follow; only the last transaction of this one shows "
            "that a copy was restored",
            "let the account connect for replication (pg_hba.conf)",
        )


def _way(connection: Connection, address: Address) -> Iterator[Finding]:
    for remark in address.remarks:
        yield Finding("password", WARN, remark, "somebody who reads it may read the whole log", "make it private")
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
            "somebody between could pass for the server",
            "write ?sslmode=verify-full&sslrootcert=/path/of/ca.pem behind the URL",
        )


def _tables(connection: Connection, publication: str) -> list[_Table]:
    rows = connection.query(
        "SELECT n.nspname, c.relname, c.relreplident, CASE c.relreplident "  # noqa: S608
        "WHEN 'i' THEN (SELECT i.indnkeyatts FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident) "
        "WHEN 'n' THEN 0 "
        "ELSE (SELECT i.indnkeyatts FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) END, "
        "greatest(c.reltuples, 0)::bigint, p.tablename IS NOT NULL, "
        "has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "LEFT JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname "
        f"AND p.pubname = {quote_literal(publication)} "
        "WHERE (c.relkind = 'p' OR c.relkind = 'r') AND NOT c.relispartition AND c.relpersistence = 'p' "
        "AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1, 2",
        timeout_s=_TIMEOUT_S,
    )
    return [
        _Table(schema or "", name or "", identity or "", int(key or 0), int(count or 0), listed == "t", reads == "t")
        for schema, name, identity, key, count, listed, reads in rows
    ]


def _named(tables: list[_Table]) -> str:
    names = [f"{one.schema}.{one.name}" for one in tables[:_NAMED]]
    more = len(tables) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
