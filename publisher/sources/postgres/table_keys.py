"""The keys of tables whose rows in the log do not show it: REPLICA IDENTITY FULL and NOTHING."""

from __future__ import annotations

from publisher.sources.postgres.connection import Connection, quote_literal

__all__ = ["key_columns"]


def key_columns(connection: Connection, schema: str, table: str) -> tuple[str, ...] | None:
    """The names of the primary key's columns in the table's order, as the catalogue has them now; empty without one,
    ``None`` without the table.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
        "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) "
        f"WHERE n.nspname = {quote_literal(schema)} AND c.relname = {quote_literal(table)} ORDER BY a.attnum"
    )
    return tuple(name for (name,) in rows if name is not None) if rows else None
