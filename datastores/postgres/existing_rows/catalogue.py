"""Queries for the definitions of tables, one JSON text for each. An equal text means that nothing was altered."""

from __future__ import annotations

from datastores.postgres.server.key_indexes import KEY_INDEX
from datastores.postgres.server.versions import FILTERS_SINCE, GENERATED_SINCE
from datastores.postgres.sql_text import quote_literal

__all__ = ["described", "named", "published"]

_SYSTEM = "('pg_catalog', 'information_schema', 'pg_toast')"

# Every name includes its schema, because the session has an empty search_path.
_BASE = (
    "(WITH RECURSIVE up AS (SELECT t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace FROM pg_type t "
    "WHERE t.oid = a.atttypid UNION ALL SELECT t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace "
    "FROM up JOIN pg_type t ON t.oid = up.typbasetype WHERE up.typtype = 'd') "
    "SELECT {} FROM up JOIN pg_namespace n ON n.oid = up.typnamespace WHERE up.typtype <> 'd')"
)
_COLUMNS = f"""(
SELECT coalesce(json_agg(json_build_object(
  'number', a.attnum, 'name', a.attname, 'type', a.atttypid, 'built_in', a.atttypid < 10000,
  'cast', format_type(a.atttypid, -1), 'declared', format_type(a.atttypid, a.atttypmod),
  'under', {_BASE.format("CASE WHEN up.oid <> a.atttypid THEN format_type(up.oid, -1) END")},
  'base_schema', {_BASE.format("CASE n.nspname WHEN 'pg_catalog' THEN '' ELSE n.nspname END")},
  'base', {_BASE.format("up.typname")},
  'generated', a.attgenerated,
  'labels', (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e
    WHERE e.enumtypid = {_BASE.format("up.oid")})
) ORDER BY a.attnum), '[]')
FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)"""  # noqa: S608
# The key of the table's updates.
_KEY = f"""(
SELECT coalesce(json_agg(json_build_object(
  'number', k.number, 'collation', quote_ident(s.nspname) || '.' || quote_ident(l.collname), 'version', l.collversion,
  'operators', (SELECT json_agg(quote_ident(z.nspname) || '.' || y.oprname ORDER BY o.amopstrategy)
    FROM pg_opclass q JOIN pg_amop o ON o.amopfamily = q.opcfamily AND o.amoplefttype = q.opcintype
    AND o.amoprighttype = q.opcintype AND o.amoppurpose = 's' JOIN pg_operator y ON y.oid = o.amopopr
    JOIN pg_namespace z ON z.oid = y.oprnamespace WHERE q.oid = k.opclass)
) ORDER BY k.at), '[]')
FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[], i.indcollation::oid[], i.indclass::oid[])
WITH ORDINALITY AS k (number, coll, opclass, at)
LEFT JOIN pg_collation l ON l.oid = k.coll LEFT JOIN pg_namespace s ON s.oid = l.collnamespace
WHERE i.indrelid = c.oid AND k.at <= i.indnkeyatts AND {KEY_INDEX})"""  # noqa: S608
_ROWS = """(
SELECT CASE WHEN bool_or(t.reltuples >= 0) THEN sum(greatest(t.reltuples, 0))::bigint END
FROM pg_class t WHERE t.relkind = 'r' AND (t.oid = c.oid OR c.relkind = 'p' AND t.oid IN (
SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)))"""


def described(version: int, publication: str, estimate: bool = False) -> str:
    """The SQL expression for the definition of table ``c`` in ``pg_class`` with its schema ``n``.

    ``estimate``: include the estimated number of rows, which changes often.
    """
    filters = version >= FILTERS_SINCE
    mine = f"(SELECT p.oid FROM pg_publication p WHERE p.pubname = {quote_literal(publication)})"  # noqa: S608

    def has(table: str, schema: str) -> str:
        """The SQL condition that the publication has a table."""
        parts = [
            f"EXISTS (SELECT FROM pg_publication p WHERE p.pubname = {quote_literal(publication)} AND p.puballtables)",
            f"EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = {mine} AND r.prrelid = {table})",
        ]
        if filters:
            parts.append(
                f"EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = {mine} AND s.pnnspid = {schema})"
            )
        return f"({' OR '.join(parts)})"

    via_root = f"coalesce((SELECT p.pubviaroot FROM pg_publication p WHERE p.oid = {mine}), false)"  # noqa: S608
    above = (
        "FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS o (relid, at) JOIN pg_class u ON u.oid = o.relid "
        f"JOIN pg_namespace m ON m.oid = u.relnamespace WHERE o.relid <> c.oid AND {has('u.oid', 'u.relnamespace')}"
    )
    # If all tables, or all of a schema, are published, filters and column lists have no effect.
    own = (
        f"FROM pg_publication_rel r WHERE r.prpubid = {mine} AND r.prrelid = c.oid AND NOT EXISTS "
        f"(SELECT FROM pg_publication_namespace s WHERE s.pnpubid = {mine} AND s.pnnspid = c.relnamespace)"
    )
    row_filter = f"(SELECT pg_get_expr(r.prqual, r.prrelid) {own})" if filters else "NULL"
    listed = f"(SELECT to_json(r.prattrs::int2[]) {own})" if filters else "NULL"
    generated = f"(SELECT p.pubgencols FROM pg_publication p WHERE p.oid = {mine})"  # noqa: S608
    return f"""json_build_object(
'number', c.oid, 'schema', n.nspname, 'table', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence,
'identity', c.relreplident, 'columns', {_COLUMNS}, 'key', {_KEY}, 'rows', {_ROWS if estimate else "NULL"},
'published', {has("c.oid", "c.relnamespace")} OR EXISTS (SELECT {above}), 'via_root', {via_root},
'root', CASE WHEN {via_root} THEN (SELECT m.nspname || '.' || u.relname {above} ORDER BY o.at DESC LIMIT 1) END,
'filter', {row_filter}, 'listed', {listed},
'generated', {generated if version >= GENERATED_SINCE else "NULL"},
'usage', has_schema_privilege(n.oid, 'USAGE'), 'select', has_table_privilege(c.oid, 'SELECT'),
'row_security', row_security_active(c.oid))"""


def named(schema: str, table: str) -> str:
    """The FROM and WHERE clauses that select one table."""
    return (
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {quote_literal(schema)} AND c.relname = {quote_literal(table)}"
    )


def published(publication: str) -> str:
    """The SELECT for the names (schema and table) under which the publication sends rows."""
    return (
        "SELECT n.nspname, c.relname FROM pg_get_publication_tables("  # noqa: S608
        f"{quote_literal(publication)}) p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n "
        f"ON n.oid = c.relnamespace WHERE n.nspname NOT IN {_SYSTEM}"
    )
