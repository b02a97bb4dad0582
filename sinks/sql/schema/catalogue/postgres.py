"""Reads a table's definition from PostgreSQL's catalogue."""

from __future__ import annotations

from typing import Any, Final

from sinks.sql.schema.catalogue.run import Run, key_of, not_a_table
from sinks.sql.schema.dialect import Dialect, TableName, quoted
from sinks.sql.schema.table import Kind, Obstacle, TargetColumn, TargetTable

__all__ = ["read_postgres"]

_RELATION: Final = "SELECT oid::bigint, relkind::text, relpersistence::text FROM pg_class WHERE oid = to_regclass(%s)"
_TABLES: Final = frozenset({"r", "p"})
# The type of a domain is its base type, which may be a domain too. The modifier -1 means no length: `character` alone
# would mean one character.
_COLUMNS: Final = """
WITH RECURSIVE based (attnum, oid, typmod) AS (
    SELECT attnum, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = %s::bigint::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype, CASE WHEN b.typmod = -1 THEN t.typtypmod ELSE b.typmod END
    FROM based b JOIN pg_type t ON t.oid = b.oid AND t.typtype = 'd'
)
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), format_type(b.oid, -1), t.typname::text, t.typtype::text,
    b.typmod, a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attgenerated::text,
    COALESCE(c.collisdeterministic, true)
FROM based b JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
JOIN pg_attribute a ON a.attrelid = %s::bigint::oid AND a.attnum = b.attnum
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation c ON c.oid = a.attcollation
ORDER BY a.attnum"""
_INDEXES: Final = """
SELECT i.indexrelid::regclass::text, i.indisprimary, o.conname::text,
    i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL,
    ARRAY(SELECT COALESCE(a.attname::text, '(an expression)')
          FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k (attnum, place)
          LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum ORDER BY k.place)
FROM pg_index i LEFT JOIN pg_constraint o ON o.conindid = i.indexrelid AND o.contype IN ('p', 'u', 'x')
WHERE i.indrelid = %s::bigint::oid AND i.indisunique ORDER BY i.indexrelid"""
_FOREIGN_KEYS: Final = "SELECT conname::text FROM pg_constraint WHERE conrelid = %s::bigint::oid AND contype = 'f'"

_KINDS: Final = {
    "bytea": Kind.BYTES,
    "text": Kind.TEXT,
    "varchar": Kind.TEXT,
    "bpchar": Kind.PADDED,
    "int2": Kind.INT,
    "int4": Kind.INT,
    "int8": Kind.INT,
    "numeric": Kind.DECIMAL,
    "float8": Kind.DOUBLE,
    "float4": Kind.FLOAT,
    "bool": Kind.BOOL,
    "date": Kind.TEMPORAL,
    "time": Kind.TEMPORAL,
    "timetz": Kind.TEMPORAL,
    "timestamp": Kind.TEMPORAL,
    "timestamptz": Kind.TEMPORAL,
    "interval": Kind.TEMPORAL,
    "json": Kind.JSON,
    "jsonb": Kind.JSON,
    "uuid": Kind.UUID,
}
_BITS: Final = {"int2": 16, "int4": 32, "int8": 64}
_HEADER: Final = 4  # the number that a stored length has in addition
_ANY_DIGITS: Final = 0xFFFF  # the stored number of digits of an interval without such a number


def read_postgres(run: Run, name: TableName) -> TargetTable | None:
    """See :func:`~sinks.sql.schema.catalogue.actual`."""
    quoted_name = name.quoted(Dialect.POSTGRES)
    found = run(_RELATION, (quoted_name,))
    if not found:
        return None
    ((oid, kind, persistence),) = found
    if kind not in _TABLES:
        raise not_a_table(name, "view" if kind in {"v", "m"} else f"relation of kind {kind}")
    columns = tuple(_column(*row) for row in run(_COLUMNS, (oid, oid)))
    primary: tuple[str, ...] = ()
    key_name, unique, usable = "", [], []
    for index, is_primary, constraint, is_usable, listed in run(_INDEXES, (oid,)):
        names = tuple(listed)
        if is_primary and is_usable:
            primary, key_name = names, constraint
            continue
        drop = (
            f"ALTER TABLE {quoted_name} DROP CONSTRAINT {quoted(constraint, Dialect.POSTGRES)}"
            if constraint
            else f"DROP INDEX {index}"
        )
        unique.append((names if is_usable else (*names, "(not for every row)"), drop))
        if is_usable:
            usable.append(names)
    obstacles = [
        Obstacle(
            f"it has the foreign key {constraint}, and rows of other tables arrive later",
            f"ALTER TABLE {quoted_name} DROP CONSTRAINT {quoted(constraint, Dialect.POSTGRES)}",
        )
        for (constraint,) in run(_FOREIGN_KEYS, (oid,))
    ]
    if persistence == "u":
        obstacles.append(
            Obstacle("it is unlogged: a crash of the server empties it", f"ALTER TABLE {quoted_name} SET LOGGED")
        )
    key = key_of(primary, usable, (column.name for column in columns if not column.nullable))
    return TargetTable(name, columns, key, key_name, tuple(unique), tuple(obstacles))


def _column(
    name: str,
    type_: str,
    cast: str,
    base: str,
    sort: str,
    modifier: int,
    required: bool,
    default: str | None,
    identity: str,
    generated: str,
    exact: bool,
) -> TargetColumn:
    problem = ""
    if generated:
        problem = "is generated"
    elif identity == "a":
        problem = "is GENERATED ALWAYS AS IDENTITY"
    kind = Kind.MEMBERS if sort == "e" else _KINDS.get(base, Kind.OTHER)
    bits = _BITS.get(base, 64)
    return TargetColumn(
        name,
        type_,
        cast,
        not required,
        default or ("by identity" if identity else ""),
        kind=kind,
        lowest=-(1 << bits - 1),
        highest=(1 << bits - 1) - 1,
        exact=exact,
        problem=problem,
        **_bounds(base, modifier),
    )


def _bounds(base: str, modifier: int) -> dict[str, Any]:
    """``size`` and ``scale`` from the stored modifier of a type, -1 without one."""
    match base:
        case "varchar" | "bpchar" if modifier >= 0:
            return {"size": modifier - _HEADER}
        case "numeric" if modifier >= 0:
            digits = modifier - _HEADER
            return {"size": digits >> 16 & 0xFFFF, "scale": ((digits & 0x7FF) ^ 0x400) - 0x400}
        case "timestamp" | "timestamptz" | "time" | "timetz":
            return {"scale": 6 if modifier < 0 else modifier}
        case "interval":
            digits = modifier & _ANY_DIGITS
            return {"scale": 6 if modifier < 0 or digits == _ANY_DIGITS else digits}
    return {}
