"""The keys of tables whose rows in the log do not show it, or not all of it."""

from __future__ import annotations

from publisher.sources.postgres.connection import Connection, quote_literal

__all__ = ["generated_keys", "key_columns"]


def key_columns(connection: Connection, schema: str, table: str) -> tuple[str, ...] | None:
    """The names of the primary key's columns in the table's order, as the catalogue has them now; empty without one,
    ``None`` without the table.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
        "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
        f"WHERE n.nspname = {quote_literal(schema)} AND c.relname = {quote_literal(table)} ORDER BY a.attnum"
    )
    return tuple(name for (name,) in rows if name is not None) if rows else None


def generated_keys(connection: Connection) -> dict[str, tuple[str, ...]]:
    """The generated columns in the log's key of a table, by its name (``schema.table``). Servers before 18 leave them
    out of the log, and later ones where the publication does not say otherwise.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT n.nspname, c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index i ON i.indrelid = c.oid "
        "AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END "
        "WHERE a.attgenerated <> '' AND a.attnum = ANY (i.indkey) ORDER BY 1, 2, a.attnum"
    )
    found: dict[str, tuple[str, ...]] = {}
    for schema, table, column in rows:
        name = f"{schema}.{table}"
        found[name] = (*found.get(name, ()), column or "")
    return found
