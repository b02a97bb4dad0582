"""The kinds of cells, by how they are decoded. ``meta``: the parameter of a kind in a table's layout."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ASCII_SAFE",
    "BIT",
    "BYTES",
    "CODED",
    "COMPRESSED",
    "DATE",
    "DATETIME",
    "DATETIME2",
    "DECIMAL",
    "DOUBLE",
    "ENUM",
    "FLOAT",
    "HIDDEN",
    "INT",
    "JSON",
    "OLD",
    "PADDED",
    "SET",
    "TEXT",
    "TIME",
    "TIME2",
    "TIMESTAMP",
    "TIMESTAMP2",
    "UINT",
    "UNKNOWN",
    "YEAR",
]

UNKNOWN: Final = 0
INT: Final = 1
"""Signed integer; meta: bytes."""
UINT: Final = 2
TEXT: Final = 3
"""UTF-8; meta: bytes of the length before it."""
BYTES: Final = 4
CODED: Final = 5
"""Text of another charset; meta: bytes of the length, `ASCII_SAFE` added where bytes below 0x80 are ASCII."""
PADDED: Final = 6
"""BINARY(n), stored without the zero bytes at its end; meta: bytes of the length, plus 256 n."""
DATETIME2: Final = 7
"""meta: digits of the fraction, as in the next three."""
TIMESTAMP2: Final = 8
TIME2: Final = 9
DATE: Final = 10
DECIMAL: Final = 11
"""meta: 256 precision + scale."""
DOUBLE: Final = 12
FLOAT: Final = 13
ENUM: Final = 14
"""meta: bytes of the number."""
SET: Final = 15
BIT: Final = 16
"""meta: bytes."""
YEAR: Final = 17
JSON: Final = 18
"""meta: bytes of the length."""
TIME: Final = 19
DATETIME: Final = 20
TIMESTAMP: Final = 21
COMPRESSED: Final = 22
"""MariaDB's compressed columns; meta as for `CODED`. Text where the plan has a codec."""
OLD: Final = 23
"""TIME, DATETIME or TIMESTAMP of before MariaDB 10.1.2 with a fraction; meta: which of `old_temporal`, times 8,
plus digits."""
HIDDEN: Final = 24
"""A column that SELECT never shows. It is skipped; meta: bytes."""
ASCII_SAFE: Final = 0x10
