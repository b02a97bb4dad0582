"""The properties of a table's columns that the decoder of cells needs. Hot: compiled where possible, for its types."""

from __future__ import annotations

import zlib
from array import array
from typing import Final

from datastores.mysql.decode import kinds
from datastores.mysql.decode.dates_and_decimals import size_of_decimal, size_of_fraction
from datastores.mysql.decode.old_temporal import old_size
from datastores.mysql.decode.table_map import Layout
from wormhole.model.errors import DecodeError

__all__ = ["Columns", "uncompress"]


_FIXED_SIZES: Final = {
    kinds.DATE: 3,
    kinds.TIME: 3,
    kinds.FLOAT: 4,
    kinds.TIMESTAMP: 4,
    kinds.DOUBLE: 8,
    kinds.DATETIME: 8,
    kinds.YEAR: 1,
}
_BEFORE_FRACTION: Final = {kinds.DATETIME2: 5, kinds.TIMESTAMP2: 4, kinds.TIME2: 3}
_SIZE_IN_META: Final = frozenset({kinds.INT, kinds.UINT, kinds.ENUM, kinds.SET, kinds.BIT, kinds.HIDDEN})


def fixed_size(kind: int, meta: int) -> int:
    """The bytes of a cell if its column determines its size, else 0."""
    if kind in _SIZE_IN_META:
        return meta
    if kind in _BEFORE_FRACTION:
        return _BEFORE_FRACTION[kind] + size_of_fraction(meta)
    if kind == kinds.DECIMAL:
        return size_of_decimal(meta >> 8, meta & 0xFF)
    if kind == kinds.OLD:
        return old_size(meta >> 3, meta & 7)
    return _FIXED_SIZES.get(kind, 0)


def length_width(kind: int, meta: int) -> int:
    """The bytes of the length that precedes a cell; 0: the column determines the size."""
    if kinds.UINT < kind <= kinds.PADDED or kind in (kinds.JSON, kinds.COMPRESSED):
        return meta & 7
    return 0


class Columns:
    """For each column its kind, and either its cells' size or the width of their length.

    ``keyed``: 1 for a column of the primary key.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.count = len(layout.kinds)
        self.kinds = bytes(layout.kinds)
        self.metas = array("I", layout.metas)
        self.sizes = array("I", map(fixed_size, layout.kinds, layout.metas))
        self.widths = bytes(map(length_width, layout.kinds, layout.metas))
        self.keyed = bytes(c in layout.key for c in range(self.count))
        self.json = layout.kinds.count(kinds.JSON)


def uncompress(data: bytes | memoryview, limit: int) -> bytes | None:
    """The uncompressed value of a compressed MariaDB column; ``None``: it exceeds ``limit`` bytes.

    The first byte has the method in its high half (0 none, 8 deflate), then a bit for deflate without zlib's frame, and
    three bits for the number of bytes of the length that follows, high byte first (MariaDB, "Storage-Engine Independent
    Column Compression"). Raises :class:`DecodeError` or ``zlib.error``.
    """
    if not data:
        return b""
    method = data[0] >> 4
    if method == 0:
        return bytes(data[1:]) if len(data) - 1 <= limit else None
    if method != 8:
        raise DecodeError(f"compression method {method} is not known")
    size = data[0] & 7
    length = int.from_bytes(data[1 : 1 + size], "big")
    if length > limit:
        return None
    raw = zlib.decompressobj(-zlib.MAX_WBITS if data[0] & 8 else zlib.MAX_WBITS).decompress(
        data[1 + size :], length + 1
    )
    if len(raw) != length:
        raise DecodeError(f"{length} bytes were compressed and other than that many come out")
    return raw
