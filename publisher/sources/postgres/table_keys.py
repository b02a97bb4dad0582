"""The keys of tables whose rows in the log do not show it, or not all of it."""

from __future__ import annotations

from publisher.sources.postgres.connection import Connection, quote_literal

__all__ = ["generated_keys", "key_columns"]


def key_columns(connection: Connection, number: int, schema: str, table: str) -> tuple[str, ...] | None:
    """The names of the primary key's columns in the table's order, as the catalogue has them now; empty without one,
    ``None`` without the table. It is found by its ``number`` (OID), since it may have another name by now and another
    table its name; by its name where it was dropped, since it may have been made anew.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
        "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
        f"WHERE CASE WHEN EXISTS (SELECT FROM pg_class WHERE oid = {number}) THEN c.oid = {number} "
        f"ELSE n.nspname = {quote_literal(schema)} AND c.relname = {quote_literal(table)} END ORDER BY a.attnum"
    )
    return tuple(name for (name,) in rows if name is not None) if rows else None


def generated_keys(connection: Connection) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Every table's name (``schema.table``) and the generated columns in the key that the log has of it, by the table's
    number (OID). Servers before 18 leave them out of the log, and later ones where the publication does not say
    otherwise.

    Raises as :meth:`~publisher.sources.postgres.connection.Connection.query`.
    """
    rows = connection.query(
        "SELECT c.oid, n.nspname, c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "LEFT JOIN pg_index i ON i.indrelid = c.oid "
        "AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attgenerated <> '' AND a.attnum = ANY (i.indkey) "
        "WHERE c.relkind IN ('r', 'p') ORDER BY 2, 3, a.attnum"
    )
    found: dict[int, tuple[str, tuple[str, ...]]] = {}
    for number, schema, table, column in rows:
        _, before = found.get(int(number or 0), ("", ()))
        found[int(number or 0)] = (f"{schema}.{table}", before if column is None else (*before, column))
    return found
