"""What ``doctor`` finds about the publication: which tables it lists, what it sends of them, and with which key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from publisher.sources.postgres import slots
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.connection import Connection, quote_identifier, quote_literal
from publisher.sources.postgres.server_state import ServerState
from publisher.sources.postgres.table_identities import MOST_NAMED, TableIdentity, named
from publisher.sources.postgres.table_keys import generated_keys
from wormhole.model.findings import Finding, Severity

__all__ = ["identity_findings", "publication_findings", "wanted_publication"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM


def wanted_publication(name: str, tables: Sequence[TableIdentity]) -> str:
    """The statement that makes it: of every table, but without those of which the server would then refuse every UPDATE
    and DELETE.
    """
    keyed = [one.sql_name for one in tables if not one.refuses_changes]
    return slots.statement_of_publication(name, keyed if len(keyed) < len(tables) else ())


def publication_findings(
    connection: Connection, state: ServerState, address: Address, tables: list[TableIdentity]
) -> Iterator[Finding]:
    """Whether the publication is there and what it lists.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    name = address.publication
    if not state.publication:
        yield Finding(
            "publication",
            PROBLEM,
            f"there is no publication {name}",
            "the server sends only what a publication lists",
            f"make it before the slots, or name another one (?publication=NAME):\n{wanted_publication(name, tables)}",
        )
        return
    yield from _what_it_sends(connection, state, name)
    left_out = [one for one in tables if not one.published]
    if not any(one.published for one in tables):
        yield Finding(
            "publication",
            PROBLEM if left_out else WARN,
            f"the publication {name} has no table",
            "no update is delivered",
            f"add what is wanted{_first_a_key(left_out)}:\nALTER PUBLICATION {quote_identifier(name)} ADD TABLE "
            + ", ".join(one.sql_name for one in left_out[:MOST_NAMED] or ())
            + ";"
            if left_out
            else "create tables, or look whether this is the right database",
        )
    elif left_out:
        yield Finding(
            "publication",
            WARN,
            f"the publication {name} leaves out {named(left_out)}",
            "their updates are not delivered",
            f"if they are wanted{_first_a_key(left_out)}:\nALTER PUBLICATION {quote_identifier(name)} ADD TABLE "
            f"{', '.join(one.sql_name for one in left_out[:MOST_NAMED])};",
        )
    else:
        yield Finding("publication", OK, f"the publication {name} has every table")


def identity_findings(tables: list[TableIdentity]) -> Iterator[Finding]:
    """Tables whose key the log lacks: the server then refuses UPDATE and DELETE of them while they are published."""
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
                f"the log has no key for {named(found)}: {why}",
                "the server refuses every UPDATE and DELETE of them while they are published",
                f"give each a primary key, or log whole rows:\nALTER TABLE {first.sql_name} REPLICA IDENTITY FULL;",
            )
    full = [one for one in tables if one.published and one.identity == "f" and not one.key_columns]
    if full:
        yield Finding(
            "replica_identity",
            WARN,
            f"{named(full)} {'has' if len(full) == 1 else 'have'} no primary key (REPLICA IDENTITY FULL)",
            "the updates of each are one shard, without a key",
            "give them a primary key",
        )


def _first_a_key(tables: Sequence[TableIdentity]) -> str:
    keyless = [one for one in tables if one.refuses_changes]
    if not keyless:
        return ""
    return (
        f" (first a primary key, or REPLICA IDENTITY FULL, for {named(keyless)}: without it the server refuses "
        "every UPDATE and DELETE of a published table)"
    )


def _what_it_sends(connection: Connection, state: ServerState, name: str) -> Iterator[Finding]:
    ((insert, update, delete, truncate, root, age),) = connection.query(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, age(xmin) FROM pg_publication "  # noqa: S608
        f"WHERE pubname = {quote_literal(name)}"
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
    if state.version >= 150000:
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
