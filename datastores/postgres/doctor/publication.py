"""The findings of ``doctor`` on the publication: its tables, the changes that it sends, and the tables' keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from datastores.postgres.log import slots
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.state import ServerState
from datastores.postgres.server.versions import FILTERS_SINCE
from datastores.postgres.sql_text import quote_identifier, quote_literal
from datastores.postgres.tables.identities import MOST_NAMED, Refusal, TableIdentity, named
from datastores.postgres.tables.keys import generated_keys
from wormhole.model.findings import Finding, Severity

__all__ = [
    "addition_to",
    "identity_findings",
    "named_values_findings",
    "publication_findings",
    "remedy",
    "unlogged_partition_findings",
    "wanted_publication",
]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM
_CHECKS: Final = {
    Refusal.ROW_FILTER: "publication_filters",
    Refusal.COLUMN_LIST: "publication_columns",
    Refusal.GENERATED: "publication_generated",
    Refusal.VIRTUAL: "publication_generated",
}
"""The codes of findings that do not concern a table's identity."""


def wanted_publication(name: str, tables: Sequence[TableIdentity], version: int) -> str:
    """The statement that creates the publication with every table without an obstacle. ``version``: the server's."""
    accepted = [one.listed_name for one in tables if not one.obstacle]
    return slots.statement_of_publication(name, accepted, version)


def addition_to(name: str, tables: Sequence[TableIdentity]) -> str:
    """The statement that adds tables to the publication."""
    listed = ", ".join(one.listed_name for one in tables)
    return f"ALTER PUBLICATION {quote_identifier(name)} ADD TABLE {listed};"


def publication_findings(
    connection: Connection, state: ServerState, address: Address, tables: list[TableIdentity]
) -> Iterator[Finding]:
    """Findings on whether the publication exists and what it lists.

    Raises as :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    name = address.publication
    if not state.publication:
        yield Finding(
            "publication",
            PROBLEM,
            f"there is no publication {name}",
            "the server sends only what a publication lists",
            "make it before the slots, or name another one (?publication=NAME):\n"
            + wanted_publication(name, tables, state.version),
        )
        return
    yield from _what_it_sends(connection, state, name)
    left_out = [one for one in tables if not one.published]
    if not left_out and tables:
        yield Finding("publication", OK, f"the publication {name} has every table")
        return
    none = not any(one.published for one in tables)
    what = "has no table" if none else f"leaves out {named(left_out)}"
    yield Finding(
        "publication",
        PROBLEM if none and left_out else WARN,
        f"the publication {name} {what}",
        "no update is delivered" if none else "their updates are not delivered",
        _how_to_add(name, left_out) if left_out else "create tables, or look whether this is the right database",
    )


def identity_findings(tables: list[TableIdentity], publication: str) -> Iterator[Finding]:
    """Findings on tables without a key, and on tables whose UPDATE and DELETE the server refuses because they are
    published."""
    for refusal in Refusal:
        found = [one for one in tables if one.refusal is refusal]
        if found:
            first = found[0]
            part = first.culprit or first
            of_part = "" if part.name == first.name else f" (of {first.schema}.{first.name}, {part.schema}.{part.name})"
            yield Finding(
                _CHECKS.get(refusal, "replica_identity"),
                PROBLEM,
                f"the server refuses every UPDATE and DELETE of {named(found)}: {refusal.value}{of_part}",
                "the application that writes there gets the error, as long as they are published like this",
                remedy(found, publication),
            )
    full = [one for one in tables if one.published and one.identity == "f" and not one.key_columns]
    if full:
        yield Finding(
            "replica_identity",
            WARN,
            f"{named(full)} {'has' if len(full) == 1 else 'have'} no primary key (REPLICA IDENTITY FULL)",
            "the updates of each are one shard, without a key",
            "give them a primary key that is not DEFERRABLE",
        )


def unlogged_partition_findings(connection: Connection) -> Iterator[Finding]:
    """Findings on partitions whose changes are not in the log although their table is published."""
    rows = connection.query(
        "SELECT format('%s.%s', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
        "WHERE c.relispartition AND (c.relpersistence = 'u' AND c.relkind = 'r' OR c.relkind = 'f') "
        f"ORDER BY 1 LIMIT {MOST_NAMED}"
    )
    if rows:
        yield Finding(
            "unlogged_partition",
            WARN,
            f"the partitions {', '.join(str(one) for (one,) in rows)} are unlogged or foreign tables",
            "changes of their rows are not delivered, while a backfill sends the rows",
            "ALTER TABLE ... SET LOGGED, and then start a backfill of the table that they are of",
        )


def named_values_findings(connection: Connection) -> Iterator[Finding]:
    """Findings on columns whose text changes when another object is renamed. The log does not show such a change."""
    rows = connection.query(
        "SELECT DISTINCT format('%s.%s', n.nspname, c.relname) FROM pg_attribute a JOIN pg_class c "  # noqa: S608
        "ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid "
        "LEFT JOIN pg_type e ON e.oid = t.typelem WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 "
        "AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND NOT a.attisdropped "
        "AND coalesce(e.oid, t.oid) IN (SELECT oid FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace "
        f"AND (typname ~ '^reg' OR typname = 'aclitem')) ORDER BY 1 LIMIT {MOST_NAMED}"
    )
    if rows:
        yield Finding(
            "named_values",
            WARN,
            f"columns of {', '.join(str(one) for (one,) in rows)} have a type such as regclass or aclitem",
            "when what they name is renamed, their values change, and the log does not have that",
            "keep numbers or text in them, or start a backfill after a rename (docs/existing-rows.md)",
        )


def remedy(refused: Sequence[TableIdentity], publication: str) -> str:
    """The remedy, with its statements, for tables whose changes the server refuses for the same reason."""
    refusal, named_ones = refused[0].refusal, refused[:MOST_NAMED]
    sql_names = dict.fromkeys((one.culprit or one).sql_name for one in named_ones)
    listed, publication = ", ".join(one.listed_name for one in named_ones), quote_identifier(publication)
    whole_rows = "\n".join(f"ALTER TABLE {sql_name} REPLICA IDENTITY FULL;" for sql_name in sql_names)
    by_key = "\n".join(f"ALTER TABLE {sql_name} REPLICA IDENTITY DEFAULT;" for sql_name in sql_names)
    if refusal is Refusal.GENERATED:
        return f"publish them:\nALTER PUBLICATION {publication} SET (publish_generated_columns = stored);"
    if refusal is Refusal.VIRTUAL:
        return f"log the key instead of whole rows:\n{by_key}"
    if refusal in {Refusal.ROW_FILTER, Refusal.COLUMN_LIST}:
        return (
            "publish the whole table, and leave what is not wanted to the applications (docs/filters.md):\n"
            f"ALTER PUBLICATION {publication} DROP TABLE {listed};\n"
            f"ALTER PUBLICATION {publication} ADD TABLE {listed};"
        )
    if refusal is Refusal.NO_KEY:
        return f"give each a primary key, or log whole rows:\n{whole_rows}"
    if refusal is Refusal.DEFERRABLE:
        return f"make the key one that is not DEFERRABLE, or log whole rows:\n{whole_rows}"
    return f"log the primary key, or without one whole rows (FULL):\n{by_key}"


def _how_to_add(name: str, tables: Sequence[TableIdentity]) -> str:
    """The hint that adds tables. Its statement has only the tables that break neither the application's writes nor a
    shard.
    """
    accepted = [one for one in tables if not one.obstacle][:MOST_NAMED]
    lines = [f"if they are wanted:\n{addition_to(name, accepted)}"] if accepted else []
    if refused := [one for one in tables if one.would_refuse is not None]:
        why = ", ".join(sorted({one.would_refuse.value for one in refused if one.would_refuse is not None}))
        lines.append(
            f"first a primary key, or REPLICA IDENTITY FULL, for {named(refused)}: the server would refuse every "
            f"UPDATE and DELETE of them ({why})"
        )
    if hidden := [one for one in tables if one.would_refuse is None and one.obstacle]:
        lines.append(f"first another primary key for {named(hidden)}: each has {hidden[0].obstacle}")
    return "\n".join(lines)


def _what_it_sends(connection: Connection, state: ServerState, name: str) -> Iterator[Finding]:
    of_schemas = "OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid)"
    later_too = f"puballtables {of_schemas if state.version >= FILTERS_SINCE else ''}"
    ((insert, update, delete, truncate, root, age, later),) = connection.query(
        f"SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, age(xmin), {later_too} "  # noqa: S608
        f"FROM pg_publication p WHERE pubname = {quote_literal(name)}"
    )
    publication = quote_identifier(name)
    sent = {"insert": insert, "update": update, "delete": delete, "truncate": truncate}
    if left_out := [operation for operation, is_sent in sent.items() if is_sent != "t"]:
        yield Finding(
            "publication_operations",
            PROBLEM,
            f"the publication {name} leaves out {', '.join(left_out)}",
            "these changes are not delivered, and nothing shows it",
            f"publish all:\nALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate');",
        )
    if root != "t":
        yield Finding(
            "publication_root",
            WARN,
            f"the publication {name} publishes partitions under their own names",
            "an application that names the partitioned table gets nothing of them",
            f"publish them as the table:\nALTER PUBLICATION {publication} SET (publish_via_partition_root = true);",
        )
    if later == "t":
        yield Finding(
            "publication_of_all_tables",
            WARN,
            f"the publication {name} has tables that will be created, too",
            "of a new table without a primary key the server then refuses every UPDATE and DELETE",
            "create each table with its primary key, or make a publication that lists tables (docs/postgres.md, "
            "Publication and slots)",
        )
    older = [slot.name for slot in state.slots.values() if not slot.lost and slot.catalog_age > int(age or 0)]
    if older:
        yield Finding(
            "publication_age",
            WARN,
            f"the publication {name} was made or changed after the place where {' and '.join(older)} begin to read",
            "the server reads old log with the publication of that time: if there was none, that log cannot be read",
            "nothing, if the publication was only changed; else flows report the range that is lost, "
            "and `wormholectl flows accept-loss APP/SHARD` goes on behind it",
        )
    if state.version >= FILTERS_SINCE:
        yield from _filters(connection, name)
    yield from _generated_keys(connection, state, name)


def _generated_keys(connection: Connection, state: ServerState, name: str) -> Iterator[Finding]:
    if state.version >= 180000 and connection.query(
        f"SELECT pubgencols FROM pg_publication WHERE pubname = {quote_literal(name)}"  # noqa: S608
    ) == [("s",)]:
        return
    found = [(table, columns) for table, columns in generated_keys(connection).values()]
    for table, columns in found[:MOST_NAMED]:
        yield Finding(
            "generated_key",
            PROBLEM,
            f"the key of {table} has the generated column {columns[0]}, which the server leaves out of the log",
            "the table's shard halts at the first update of it",
            "give it a key without that column, or from PostgreSQL 18 on publish it: ALTER PUBLICATION "
            f"{quote_identifier(name)} SET (publish_generated_columns = stored);",
        )


def _filters(connection: Connection, name: str) -> Iterator[Finding]:
    rows = connection.query(
        "SELECT format('%s.%s', n.nspname, c.relname) FROM pg_publication_rel r "  # noqa: S608
        "JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE p.pubname = {quote_literal(name)} AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL) "
        f"ORDER BY 1 LIMIT {MOST_NAMED}"
    )
    if rows:
        yield Finding(
            "publication_filters",
            WARN,
            f"the publication {name} has a row filter or a column list for {', '.join(str(one) for (one,) in rows)}",
            "what it leaves out reaches no application",
            "leave filters to the applications (`where`, `columns`: docs/filters.md), or keep it if that is meant",
        )
