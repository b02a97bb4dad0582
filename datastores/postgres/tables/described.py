"""Reads the definitions of a database's tables, from which models are generated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Final

from datastores.postgres.decode.kinds import BOOL, BYTES, DECIMAL, DOUBLE, INT, UINT, kind_of
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Row, connect, understood
from datastores.postgres.server.key_indexes import KEY_INDEX
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition

__all__ = ["describe"]

_TIMEOUT_S: Final = 60.0
_MOST_BYTES: Final = 1 << 30  # a million columns
# A domain has the form of its base type, which may itself be a domain.
_COLUMNS: Final = f"""\
WITH RECURSIVE base (id, oid) AS (
    SELECT oid, oid FROM pg_type
    UNION ALL
    SELECT b.id, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT n.nspname, c.relname, a.attname, a.attnotnull OR d.typnotnull, t.oid, t.typtype,
    CASE WHEN t.typtype = 'e' THEN
        (SELECT string_agg(e.enumlabel, chr(31) ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid) END,
    array_position(i.indkey::int2[], a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type d ON d.oid = a.atttypid
JOIN base b ON b.id = a.atttypid JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
LEFT JOIN pg_index i ON i.indrelid = c.oid
    AND c.relreplident <> 'n' AND {KEY_INDEX}
WHERE (c.relkind = 'p' OR c.relkind = 'r') AND NOT c.relispartition AND c.relpersistence = 'p'
    AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY 1, 2, a.attnum"""  # noqa: S608
_BY_KIND: Final = {
    BOOL: Content.BOOLEAN,
    BYTES: Content.BYTES,
    DECIMAL: Content.DECIMAL,
    DOUBLE: Content.FLOAT,
    INT: Content.INTEGER,
    UINT: Content.INTEGER,
}
_BY_OID: Final = {
    114: Content.JSON,
    1082: Content.DATE,
    1114: Content.DATETIME,
    1184: Content.MOMENT,
    3802: Content.JSON,
}


def describe(address: Address, wanted: Callable[[str], bool]) -> list[TableDefinition]:
    """The ``wanted`` tables that the account may see, without the system's schemas.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    connection = connect(address)
    try:
        with understood(address):
            rows = connection.query(_COLUMNS, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
            tables = groupby(rows, lambda row: ".".join(str(name) for name in row[:2]))
            return [_table(name, list(columns)) for name, columns in tables if wanted(name)]
    finally:
        connection.close()


def _table(name: str, rows: list[Row]) -> TableDefinition:
    # In the table's order, which is the order of the key in updates.
    key = tuple(str(column) for _, _, column, _, _, _, _, place in rows if place is not None)
    return TableDefinition(name, key, tuple(_column(row) for row in rows))


def _column(row: Row) -> ColumnDefinition:
    _, _, name, required, oid, kind, members, _ = row
    content = _BY_OID.get(int(oid or 0)) or _BY_KIND.get(kind_of(int(oid or 0), None), Content.TEXT)
    if kind == "e":
        content = Content.ENUM
    return ColumnDefinition(name or "", content, required != "t", tuple((members or "").split("\x1f")) * (kind == "e"))
