"""Encodes the rare kinds of entries: wide columns, blob indexes, timed puts, keys with timestamps, too large values.

It uses :func:`wormhole.wire.rows.encode_row`. The module `write_batch` encodes the other kinds without it.
"""

from __future__ import annotations

from typing import Final

from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import encode_row
from wormhole.wire.v1 import update_pb2

__all__ = ["rare_key", "rare_update", "wide_columns"]

_DELETIONS: Final = frozenset({0x00, 0x04, 0x07, 0x08, 0x14})
_MERGES: Final = frozenset({0x02, 0x06})
_RANGES: Final = frozenset({0x0E, 0x0F})
_BLOB_INDEXES: Final = frozenset({0x10, 0x11})
_WIDE: Final = frozenset({0x16, 0x17})
_TIMED: Final = frozenset({0x18, 0x19})


def _split(key: bytes, timestamp: int, commit_timestamp: bytes) -> tuple[bytes, ...]:
    """The key's columns. A user-defined timestamp, at the key's end, is a second column."""
    if not timestamp:
        return (key,)
    if len(key) < timestamp:
        raise DecodeError(f"a key of {len(key)} bytes is shorter than its column family's timestamp of {timestamp}")
    # A prepared transaction is logged with a timestamp of zeros. Its commit holds the timestamp.
    known = commit_timestamp if len(commit_timestamp) == timestamp else key[-timestamp:]
    return (key[:-timestamp], known)


def rare_key(key: bytes, timestamp: int, commit_timestamp: bytes) -> bytes:
    """The hashed bytes of a key with a timestamp (see `wormhole.model.sharding`)."""
    parts = _split(key, timestamp, commit_timestamp)
    return b"".join(update_pb2.Value(bytes=part).SerializeToString() for part in parts)


def wide_columns(entity: bytes) -> tuple[Value, Value]:
    """The default column's value (``None``: no default column) and the other columns by name.

    For an unknown version of the format both are ``UNAVAILABLE``. Raises :class:`DecodeError`::

        entity := version count (name size(value))* value*      integers are varint32; a name's size precedes it
    """
    at = 0

    def varint(field: str) -> int:
        nonlocal at
        n = shift = 0
        while at < len(entity) and shift < 35:
            byte = entity[at]
            at += 1
            n |= (byte & 0x7F) << shift
            if byte < 0x80 and n < 1 << 32:
                return n
            shift += 7
        raise DecodeError(f"wide columns: {field} at byte {at} is no 32-bit integer")

    if varint("version") != 1:
        return UNAVAILABLE, UNAVAILABLE
    names: list[tuple[bytes, int]] = []
    count = varint("count")
    if count > len(entity):
        raise DecodeError(f"wide columns: {count} columns in {len(entity)} bytes")
    for _ in range(count):
        size = varint("name size")
        name = entity[at : at + size]
        at += size
        names.append((name, varint("value size")))
    if at + sum(size for _, size in names) != len(entity):
        raise DecodeError(f"wide columns: the sizes of {count} columns do not add up to {len(entity)} bytes")
    default: Value = None
    others: dict[bytes, bytes] = {}
    for name, size in names:
        if name:
            others[name] = entity[at : at + size]
        else:
            default = entity[at : at + size]
        at += size
    return default, others


def rare_update(kind: int, key: bytes, value: bytes, timestamp: int, commit_timestamp: bytes, large: bool) -> bytes:
    """The encoded update of an entry. ``large``: leave its values out. Raises :class:`DecodeError`."""
    columns = _split(key, timestamp, commit_timestamp)
    if kind in _DELETIONS:
        return encode_row(Op.DELETE, columns, too_large=large)
    if kind in _RANGES:
        end: tuple[Value, ...] = (UNAVAILABLE,) * len(columns) if large else _split(value, timestamp, commit_timestamp)
        return encode_row(Op.DELETE_RANGE, columns, key_end=end, too_large=large)
    op = Op.MERGE if kind in _MERGES else Op.UPSERT
    if large:
        return encode_row(op, columns, too_large=True)
    after: tuple[Value, ...] = (value,)
    if kind in _BLOB_INDEXES:
        after = (UNAVAILABLE,)
    elif kind in _WIDE:
        after = wide_columns(value)
    elif kind in _TIMED:
        if len(value) < 8:
            raise DecodeError(f"timed put: a value of {len(value)} bytes is shorter than its write time")
        after = (value[:-8],)
    return encode_row(op, columns, after=after)
