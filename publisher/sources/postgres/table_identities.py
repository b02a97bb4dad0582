"""The tables of a database with what the log needs of each: is it published, and does its key reach the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from publisher.sources.postgres.connection import Connection, quote_identifier, quote_literal
from publisher.sources.postgres.key_indexes import KEY_INDEX

__all__ = ["MOST_NAMED", "TableIdentity", "named", "read_tables"]

MOST_NAMED: Final = 8
"""How many tables a message names."""
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """``identity``: ``d`` default, ``n`` nothing, ``f`` full, ``i`` an index. ``key_columns``: of the log's key.

    ``rows``: about how many. ``published``: by the publication in question. ``readable``: the account has SELECT.
    """

    schema: str
    name: str
    identity: str
    key_columns: int
    rows: int
    published: bool
    readable: bool

    @property
    def sql_name(self) -> str:
        """As SQL takes it."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"

    @property
    def refuses_changes(self) -> bool:
        """Whether the server refuses every UPDATE and DELETE of the table while it is published."""
        return self.identity != "f" and not self.key_columns


def read_tables(connection: Connection, publication: str) -> list[TableIdentity]:
    """The permanent tables outside the system's schemas; of a partitioned one its root.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT n.nspname, c.relname, c.relreplident, CASE c.relreplident WHEN 'n' THEN 0 ELSE "  # noqa: S608
        f"(SELECT i.indnkeyatts FROM pg_index i WHERE i.indrelid = c.oid AND {KEY_INDEX}) END, "
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
        TableIdentity(
            schema or "", name or "", identity or "", int(key or 0), int(count or 0), listed == "t", reads == "t"
        )
        for schema, name, identity, key, count, listed, reads in rows
    ]


def named(tables: Sequence[TableIdentity]) -> str:
    """The first of them, and how many more there are."""
    names = [f"{one.schema}.{one.name}" for one in tables[:MOST_NAMED]]
    more = len(tables) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
