"""Encodes rows as READ updates. Keys and values have the same bytes as in updates from the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from wormhole.model.values import Op, Value
from wormhole.wire.rows import encode_row

__all__ = ["encode_plain", "encode_wide", "is_plain", "key_field_size"]

Columns = Sequence[tuple[bytes, bytes]]
"""Names and values of a row's columns. A plain value is one column without a name."""

_READ: Final = b"\x08\x08"
_KEY: Final = 0x12
_AFTER: Final = 0x1A


def _varint_size(n: int) -> int:
    return max(1, (n.bit_length() + 6) // 7)


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


@lru_cache(maxsize=4096)
def _head(tag: int, size: int) -> bytes:
    """The bytes that precede ``size`` bytes in a field of type Value."""
    return bytes((tag,)) + _varint(1 + _varint_size(size) + size) + b"\x0a" + _varint(size)


def is_plain(columns: Columns) -> bool:
    """Whether the row is a plain value, not an entity of wide columns."""
    return len(columns) == 1 and not columns[0][0]


def key_field_size(key: bytes) -> int:
    """The size of the key's field, which begins at the third byte of an update."""
    return len(_head(_KEY, len(key))) + len(key)


def encode_plain(key: bytes, value: bytes, max_update_bytes: int) -> bytes:
    """The row of a plain value, without the value if it is too large."""
    if len(key) + len(value) > max_update_bytes:
        return encode_row(Op.READ, (key,), too_large=True)
    return b"".join((_READ, _head(_KEY, len(key)), key, _head(_AFTER, len(value)), value))


def encode_wide(key: bytes, columns: Columns, max_update_bytes: int) -> bytes:
    """The row of an entity: its default column (NULL if it has none), and the other columns by name."""
    if len(key) + _entity_size(columns) > max_update_bytes:
        return encode_row(Op.READ, (key,), too_large=True)
    default: Value = None
    others: dict[bytes, bytes] = {}
    for name, value in columns:
        if name:
            others[name] = value
        else:
            default = value
    return encode_row(Op.READ, (key,), after=(default, others))


def _entity_size(columns: Columns) -> int:
    """The size of an entity in the log: version, number of columns, names with sizes, and values."""
    return (
        1
        + _varint_size(len(columns))
        + sum(_varint_size(len(name)) + len(name) + _varint_size(len(value)) + len(value) for name, value in columns)
    )
