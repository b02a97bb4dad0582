"""Reads a table's definition from DuckDB's catalogue."""

from __future__ import annotations

from typing import Any, Final

from sinks.sql.schema.catalogue.run import Run, key_of, not_a_table
from sinks.sql.schema.dialect import Dialect, TableName, quoted
from sinks.sql.schema.table import Kind, Obstacle, TargetColumn, TargetTable

__all__ = ["read_duckdb"]

_PLACE: Final = (
    "database_name = current_database() AND lower(schema_name) = lower(COALESCE(%s, current_schema()))"
    " AND lower(table_name) = lower(%s)"
)
_STANDARD_PLACE: Final = _PLACE.replace("database_name", "table_catalog").replace("schema_name", "table_schema")
_TABLE: Final = f"SELECT sql FROM duckdb_tables() WHERE {_PLACE}"  # noqa: S608
_VIEW: Final = f"SELECT 1 FROM duckdb_views() WHERE {_PLACE.replace('table_name', 'view_name')}"  # noqa: S608
_COLUMNS: Final = f"""
SELECT column_name, data_type, is_nullable = 'YES', column_default, numeric_precision, numeric_scale,
    is_generated = 'ALWAYS'
FROM information_schema.columns WHERE {_STANDARD_PLACE}
ORDER BY ordinal_position"""  # noqa: S608
_CONSTRAINTS: Final = f"""
SELECT constraint_type, constraint_column_names FROM duckdb_constraints()
WHERE {_PLACE} AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')
ORDER BY constraint_index"""  # noqa: S608
_INDEXES: Final = f"SELECT index_name, expressions FROM duckdb_indexes() WHERE {_PLACE} AND is_unique"  # noqa: S608

_INTEGERS: Final = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "INTEGER": 32,
    "BIGINT": 64,
    "HUGEINT": 128,
    "UTINYINT": 8,
    "USMALLINT": 16,
    "UINTEGER": 32,
    "UBIGINT": 64,
    "UHUGEINT": 128,
}
_KINDS: Final = {
    **dict.fromkeys(_INTEGERS, Kind.INT),
    "BLOB": Kind.BYTES,
    "VARCHAR": Kind.TEXT,
    "DECIMAL": Kind.DECIMAL,
    "DOUBLE": Kind.DOUBLE,
    "FLOAT": Kind.FLOAT,
    "BOOLEAN": Kind.BOOL,
    "JSON": Kind.JSON,
    "UUID": Kind.UUID,
    "ENUM": Kind.MEMBERS,
}
_TEMPORAL: Final = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}


def read_duckdb(run: Run, name: TableName) -> TargetTable | None:
    """See :func:`~sinks.sql.schema.catalogue.actual`."""
    place = (name.schema, name.table)
    found = run(_TABLE, place)
    if not found:
        if run(_VIEW, place):
            raise not_a_table(name, "view")
        return None
    has_collation = "COLLATE" in str(found[0][0]).upper()  # only the table's SQL shows a collation
    columns = tuple(_column(has_collation, *row) for row in run(_COLUMNS, place))
    table = name.quoted(Dialect.DUCKDB)
    primary: tuple[str, ...] = ()
    unique, usable, obstacles = [], [], []
    for kind, listed in run(_CONSTRAINTS, place):
        names = tuple(listed)
        if kind == "PRIMARY KEY":
            primary = names
        elif kind == "UNIQUE":
            unique.append((names, f"DROP TABLE {table}"))
            usable.append(names)
        else:
            what = f"it has a foreign key on {', '.join(names)}, and rows of other tables arrive later"
            obstacles.append(Obstacle(what, f"DROP TABLE {table}"))
    for index, expressions in run(_INDEXES, place):
        unique.append(((f"({expressions})",), f"DROP INDEX {quoted(index, Dialect.DUCKDB)}"))
    key = key_of(primary, usable, (column.name for column in columns if not column.nullable))
    return TargetTable(name, columns, key, "", tuple(unique), tuple(obstacles))


def _column(
    has_collation: bool,
    name: str,
    type_: str,
    nullable: bool,
    default: str | None,
    precision: int | None,
    scale: int | None,
    is_generated: bool,
) -> TargetColumn:
    base = type_.partition("(")[0]
    bits = _INTEGERS.get(base, 64)
    is_unsigned = base in _INTEGERS and base.startswith("U")
    is_temporal = base.startswith(("DATE", "TIME", "INTERVAL"))
    bounds: dict[str, Any] = {"size": precision, "scale": scale} if base == "DECIMAL" else {}
    if is_temporal:
        bounds = {"scale": _TEMPORAL.get(base, 6)}
    return TargetColumn(
        name,
        type_,
        nullable=nullable,
        default=default or "",
        kind=Kind.TEMPORAL if is_temporal else _KINDS.get(base if not type_.endswith("]") else "", Kind.OTHER),
        lowest=0 if is_unsigned else -(1 << bits - 1),
        highest=(1 << bits) - 1 if is_unsigned else (1 << bits - 1) - 1,
        exact=not has_collation,
        problem="is generated" if is_generated else "",
        **bounds,
    )
