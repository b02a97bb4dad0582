"""The kinds of cells, by the way they are decoded. ``meta``: a kind's parameter in a table's layout."""

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
"""UTF-8; meta: bytes of the preceding length."""
BYTES: Final = 4
CODED: Final = 5
"""Text of another charset; meta: bytes of the length, plus `ASCII_SAFE` if bytes below 0x80 are ASCII."""
PADDED: Final = 6
"""BINARY(n), stored without its trailing zero bytes; meta: bytes of the length, plus 256 n."""
DATETIME2: Final = 7
"""meta: digits of the fraction, also for the next three kinds."""
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
"""MariaDB's compressed columns; meta as for `CODED`. The value is text if the layout has a codec."""
OLD: Final = 23
"""TIME, DATETIME or TIMESTAMP with a fraction of before MariaDB 10.1.2; meta: the number of the type in `old_temporal`,
times 8, plus digits."""
HIDDEN: Final = 24
"""A column that no SELECT shows, which is skipped; meta: its bytes."""
ASCII_SAFE: Final = 0x10
