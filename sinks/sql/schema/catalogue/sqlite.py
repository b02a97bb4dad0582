"""Reads a table's definition from SQLite's schema. A column's type is only a preference for conversions."""

from __future__ import annotations

from typing import Final

from sinks.sql.schema.catalogue.run import Run, key_of, not_a_table
from sinks.sql.schema.dialect import Dialect, TableName, quoted
from sinks.sql.schema.table import Kind, TargetColumn, TargetTable

__all__ = ["read_sqlite"]

_TABLE: Final = "SELECT name, type, sql FROM sqlite_master WHERE lower(name) = lower(%s) AND type IN ('table', 'view')"
_COLUMNS: Final = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(%s) ORDER BY cid'
_INDEXES: Final = 'SELECT name, origin, partial FROM pragma_index_list(%s) WHERE "unique" = 1 ORDER BY seq DESC'
_PARTS: Final = (
    "SELECT COALESCE(name, '(an expression)'), coll FROM pragma_index_xinfo(%s) WHERE key = 1 ORDER BY seqno"
)
_GENERATED: Final = frozenset({2, 3})
# In the order in which SQLite looks for them.
_KINDS: Final = (
    ("INT", Kind.INT),
    ("CHAR", Kind.TEXT),
    ("CLOB", Kind.TEXT),
    ("TEXT", Kind.TEXT),
    ("BLOB", Kind.BYTES),
    ("REAL", Kind.DOUBLE),
    ("FLOA", Kind.DOUBLE),
    ("DOUB", Kind.DOUBLE),
    ("BOOL", Kind.INT),
    ("DATE", Kind.TEMPORAL),
    ("TIME", Kind.TEMPORAL),
)


def read_sqlite(run: Run, name: TableName) -> TargetTable | None:
    """See :func:`~sinks.sql.schema.catalogue.actual`."""
    found = run(_TABLE, (name.table,))
    if not found:
        return None
    ((table, kind, sql),) = found
    if kind == "view" or str(sql).upper().startswith("CREATE VIRTUAL"):
        raise not_a_table(name, "view" if kind == "view" else "virtual table")
    rows = run(_COLUMNS, (table,))
    primary = tuple(row[0] for row in sorted((row for row in rows if row[4]), key=lambda row: int(row[4])))
    unique, usable = [], []
    inexact: set[str] = set()
    for index, origin, partial in run(_INDEXES, (table,)):
        parts = run(_PARTS, (index,))
        names = tuple(column for column, _ in parts)
        inexact.update(column for column, collation in parts if collation != "BINARY")
        if origin == "pk":
            continue
        drop = "DROP INDEX " + quoted(index, Dialect.SQLITE) if origin == "c" else "DROP TABLE " + _quoted(name)
        unique.append(((*names, "(not for every row)") if partial else names, drop))
        if not partial:
            usable.append(names)
    columns = tuple(
        TargetColumn(
            column,
            type_ or "BLOB",
            nullable=not required,
            default=default or "",
            kind=_kind(type_),
            exact=column not in inexact,
            problem="is generated" if hidden in _GENERATED else "",
        )
        for column, type_, required, default, _, hidden in rows
    )
    key = key_of(primary, usable, (column.name for column in columns if not column.nullable))
    return TargetTable(name, columns, key, "", tuple(unique))


def _quoted(name: TableName) -> str:
    return name.quoted(Dialect.SQLITE)


def _kind(type_: str) -> Kind:
    """The kind of a column by its type's affinity. A column of numbers stores text that looks like a number as one."""
    upper = type_.upper()
    return next((kind for part, kind in _KINDS if part in upper), Kind.DOUBLE if upper else Kind.BYTES)
