"""Chooses by a column's type how its text is decoded.

Subscribers get typed values if Python can represent every value of the type. Other values are text, as ``SELECT`` shows
them with `SESSION_SETTINGS`.
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
"""The schema's name of a column's type, by kind."""

SESSION_SETTINGS: Final = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "TimeZone": "UTC",
    "search_path": "",  # names of tables, types and functions are shown with their schema
    "quote_all_identifiers": "off",
}
"""Settings of a session. Other settings would change the text of values.

`lc_monetary` keeps the database's setting, which determines the decimal places of a stored `money`.
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
    """The kind of a type. ``base``: schema and name from the Type message, for a type that is not built in. A domain
    has those of its base type. The schema of a built-in type is empty."""
    if base is None:
        return _BY_OID.get(oid, TEXT)
    schema, name = base
    return _BY_NAME.get(name, TEXT) if schema in {"", "pg_catalog"} else TEXT
