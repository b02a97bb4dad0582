"""How a column's text is decoded, by its type.

Subscribers get typed values where Python holds all that the type has; everything else is the text that ``SELECT``
shows, with the settings of `SESSION_SETTINGS`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BOOL", "BYTES", "DECIMAL", "DOUBLE", "INT", "SCHEMA_TYPES", "SESSION_SETTINGS", "TEXT", "UINT", "kind_of"]

TEXT: Final = 0
BYTES: Final = 1
INT: Final = 2
UINT: Final = 3
BOOL: Final = 4
DOUBLE: Final = 5
DECIMAL: Final = 6

SCHEMA_TYPES: Final = ("text", "bytes", "int", "uint", "bool", "double", "decimal")
"""What a schema calls a column's type, by kind."""

SESSION_SETTINGS: Final = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "TimeZone": "UTC",
    "search_path": "",  # names of tables, types and functions are shown with their schema
    "quote_all_identifiers": "off",
}
"""Settings of a session: with others the same value would have another text.

`lc_monetary` stays the database's: it decides how many digits of a stored `money` are behind the point.
"""

_BY_OID: Final = {
    16: BOOL,
    17: BYTES,
    20: INT,
    21: INT,
    23: INT,
    26: INT,  # oid
    28: INT,  # xid
    29: INT,  # cid
    700: DOUBLE,
    701: DOUBLE,
    1700: DECIMAL,
    5069: UINT,  # xid8
}
_BY_NAME: Final = {
    "bool": BOOL,
    "bytea": BYTES,
    "int8": INT,
    "int2": INT,
    "int4": INT,
    "oid": INT,
    "xid": INT,
    "cid": INT,
    "float4": DOUBLE,
    "float8": DOUBLE,
    "numeric": DECIMAL,
    "xid8": UINT,
}


def kind_of(oid: int, base: tuple[str, str] | None) -> int:
    """The kind of a type. ``base``: schema and name of a type that is not built in, as its Type message has them: of a
    domain those of what it is based on, where the schema is empty for a built-in type."""
    if base is None:
        return _BY_OID.get(oid, TEXT)
    schema, name = base
    return _BY_NAME.get(name, TEXT) if schema in {"", "pg_catalog"} else TEXT
