"""Encodes rows events as updates. Hot: compiled where possible.

The layout, from MySQL's documentation of ``Rows_event``. Version 2 has the extra data; MariaDB writes version 1::

    body   := table_id (6) flags (2) [length of the extra data, itself included (2), extra data] columns (packed)
              present (bitmap, lowest bit first) [present after an update (bitmap)] row*
    row    := image, of an update: image before, image after       image: see `datastores.mysql.decode.row_image`

From the images, `datastores.common.encode.row_updates` makes the update.
"""

from __future__ import annotations

from typing import Any, Final

from datastores.common.encode.piece import HASHED
from datastores.common.encode.row_updates import RowTable, RowUpdates
from datastores.mysql.decode.columns import Columns
from datastores.mysql.decode.row_image import Image
from datastores.mysql.decode.table_map import Layout
from wormhole.model.errors import DecodeError

__all__ = ["Rows", "Table"]

# Kinds of rows events, and the operations (wormhole.wire.v1.Op).
_INSERT: Final = 1
_UPDATE: Final = 2
_DELETE: Final = 3

# Tags of Update's fields.
_AFTER: Final = 0x1A
_BEFORE: Final = 0x22

# ROW END of a current row is the last TIMESTAMP: before MariaDB 11.5, and from then on.
_FOREVER: Final = frozenset({b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999"})
_MAYBE_VERSIONED: Final = (
    "it may have been system-versioned when this was logged, and the server no longer has it as it was. Name "
    "it in history_tables to get "
    "its rows as they are logged, with those of its history, or in skip_tables, and restart the publisher"
)

_HASHED: Final = HASHED
_LIMIT: Final = (1 << 31) - 1
_MOST: Final = 1 << 20
"""The most bytes of updates that one step makes from an event's rows, besides twice the event's size. A few bytes of
log can become many bytes of updates."""


class Table(RowTable):
    """A known table map. ``body``: its bytes. ``columns``: ``None`` if the caller handles the rows.

    ``row_end``: position of the ROW END column of a system-versioned table; -1: it has none. ``maybe``: the columns
    that may be ROW END if that is unknown; a row that looks like a current one is then refused.
    """

    def __init__(
        self,
        body: bytes,
        layout: Layout | None,
        schema: int,
        shard: int,
        row_end: int = -1,
        maybe: tuple[int, ...] = (),
    ) -> None:
        if shard == _HASHED and not (layout and layout.key):
            raise ValueError("a table without a primary key cannot be split by the hash of its key")
        if layout is None:
            super().__init__("", 0, (), schema, shard)
        else:
            super().__init__(layout.table, len(layout.kinds), layout.key, schema, shard)
        self.columns = None if layout is None else Columns(layout)
        self.body = body
        self.row_end = row_end
        self.maybe = maybe


def _bits(data: bytes, count: int) -> int:
    """The number of bits that are set among the first ``count``."""
    p = data
    n = 0
    for i in range(count):
        n += p[i >> 3] >> (i & 7) & 1
    return n


class Rows:
    """Encodes rows in order into ``updates``.

    An event that is not held in memory is opened with its first bytes. Its rows follow in parts (`stretch`). The images
    of a row larger than a part come one by one (`image`), and `row` encodes the row. ``columns``, ``op``, ``partial``,
    and the bits and ``count`` of each image's columns are those of the last opened event.
    """

    def __init__(self, max_update_bytes: int, hash_shards: int, room: int) -> None:
        self.max_update_bytes = max_update_bytes
        self._before = Image(max_update_bytes)
        self._after = Image(max_update_bytes)
        self._composed = RowUpdates(self._before, self._after, max_update_bytes, hash_shards, room)
        self.updates = self._composed.updates
        self.op = 0
        self.partial = False
        self.columns: Any = None  # `Columns`, once an event was opened
        self.before_bits = self.after_bits = b""
        self.before_count = self.after_count = 0
        self._table: Any = None  # its `Table`

    @property
    def too_large(self) -> int:
        """The number of updates without their values."""
        return int(self._composed.too_large)

    def event(self, data: bytes, at: int, end: int, table: Table, op: int, extra: bool, partial: bool) -> int:
        """Encode the rows of an event. ``data[at:end]``: its body after table id and flags. Returns the offset after
        the rows.

        The offset is before ``end`` if the rows take much more room than the event; `stretch` encodes the others.
        ``op``: a value of `wormhole.wire.v1.Op`. ``extra``: the event has version 2. ``partial``: it may hold changes
        of JSON documents. Raises :class:`DecodeError` with table and field, and then keeps nothing of the event.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"rows {at}:{end} of {len(data)} bytes are out of range")
        updates = self.updates
        count = updates.count
        too_large = self._composed.too_large
        try:
            at = self.open(data, at, end, table, op, extra, partial)
            most = updates.used + _MOST + 2 * (end - at)
            while True:
                row = at
                at = self._one(data, at, end)
                if at >= end or updates.used >= most:
                    return at
                if at == row:
                    raise self._bad(table, f"{end - at} bytes follow rows that have none")
        except DecodeError:
            self._undo(count, too_large)
            raise

    def stretch(self, data: bytes, at: int, end: int, most: int, last: bool) -> int:
        """Encode the rows in ``data[at:end]``, up to about ``most`` bytes of updates. Returns the offset of the first
        row left.

        ``last``: no bytes follow. Otherwise a row that cannot be decoded may only be incomplete, and is left. Raises
        :class:`DecodeError`, and then keeps nothing of the faulty row.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT or self._table is None:
            raise ValueError(f"rows {at}:{end} of {len(data)} bytes are out of range")
        updates = self.updates
        while at < end and updates.used < most:
            row = at
            count = updates.count
            too_large = self._composed.too_large
            try:
                at = self._one(data, at, end)
            except DecodeError:
                self._undo(count, too_large)
                if last:
                    raise
                return row
            if at == row:
                self._undo(count, too_large)
                raise self._bad(self._table, f"{end - at} bytes follow rows that have none")
        return at

    def _undo(self, count: int, too_large: int) -> None:
        """Drop the updates that were encoded after these counts."""
        self.updates.back(count)
        self._composed.too_large = too_large

    def image(self, data: bytes, after: bool, left_out: bool, source: bytes) -> None:
        """Read the image in ``data`` for `row`.

        ``left_out``: some of its values were replaced by NULL, because the row is too large. ``source``: the data of
        the image before, needed if this image may hold changes of JSON documents.
        """
        columns = self.columns
        image = self._after if after else self._before
        before = None
        if after:
            image.most = self.max_update_bytes - (0 if self.op == _INSERT else self._before.used)
            if self.partial:
                before = self._before
        bits = self.after_bits if after else self.before_bits
        count = self.after_count if after else self.before_count
        try:
            end = image.read(data, 0, len(data), columns, bits, count, _AFTER if after else _BEFORE, before, source)
        finally:
            image.most = self.max_update_bytes
        if end != len(data):
            raise ValueError(f"an image of {end} bytes was given as {len(data)}")
        if left_out:
            image.too_large = True

    def row(self) -> None:
        """Encode the row of the images that were read."""
        self._meant(self._table, self.op)
        self._before.release()
        self._after.release()

    def before_used(self) -> int:
        """The bytes of the image before the change."""
        return self._before.used

    def open(self, data: bytes, at: int, end: int, table: Table, op: int, extra: bool, partial: bool) -> int:
        """Read the bytes before the rows in ``data[at:end]``. Returns the offset of the first row. See `event`."""
        p = data
        columns = table.columns
        if columns is None:
            raise ValueError("the rows of a table without a layout cannot be decoded")
        if extra:
            size = p[at] | p[at + 1] << 8 if end - at >= 2 else 0
            if size < 2 or size > end - at:
                raise self._bad(table, f"extra data of {size} bytes does not fit into the {end - at} that are left")
            at += size
        if at == end:
            raise self._bad(table, "the number of columns is missing")
        count = p[at]
        at += 1
        if count >= 0xFB:
            if count != 0xFC or end - at < 2:
                raise self._bad(table, "the number of columns is cut or out of range")
            count = p[at] | p[at + 1] << 8
            at += 2
        if count != columns.count:
            raise self._bad(table, f"its rows have {count} columns, its table map has {columns.count}")
        size = (count + 7) // 8
        if (2 * size if op == _UPDATE else size) > end - at:
            raise self._bad(table, "the bits of its present columns are cut")
        self._table = table
        self.columns = columns
        self.op = op
        self.partial = partial and op == _UPDATE
        self.before_bits = p[at : at + size]
        self.before_count = _bits(self.before_bits, count)
        at += size
        self.after_bits = self.before_bits
        self.after_count = self.before_count
        if op == _UPDATE:
            self.after_bits = p[at : at + size]
            self.after_count = _bits(self.after_bits, count)
            at += size
        return at

    def _one(self, data: bytes, at: int, end: int) -> int:
        """Encode the row at ``at`` of the open event. Returns the offset after it."""
        op = self.op
        before = self._before
        after = self._after
        if op != _INSERT:
            at = before.read(data, at, end, self.columns, self.before_bits, self.before_count, _BEFORE, None)
        if op != _DELETE:
            at = after.read(
                data,
                at,
                end,
                self.columns,
                self.after_bits,
                self.after_count,
                _AFTER,
                before if self.partial else None,
                data,
            )
        self._meant(self._table, op)
        return at

    def _meant(self, table: Table, op: int) -> None:
        """Encode the row in the images if it concerns the current rows."""
        if table.row_end < 0 and not table.maybe:
            self._composed.change(table, op, op == _UPDATE)
        else:
            meant = self._current(table, op)
            if meant:
                self._composed.change(table, meant, meant == _UPDATE)

    def _current(self, table: Table, op: int) -> int:
        """The operation on the current rows of a system-versioned table; 0: the images concern only history.

        MariaDB logs a DELETE as an update that ends the row. With each update it also logs an insert of the former row.
        """
        if table.maybe:
            for c in table.maybe:
                if self._seems_current(self._before, op != _INSERT, c) or self._seems_current(
                    self._after, op != _DELETE, c
                ):
                    raise self._bad(table, _MAYBE_VERSIONED)
            return op
        c = table.row_end
        before = op != _INSERT and self._lives(table, self._before, c)
        after = op != _DELETE
        if after:
            after = self._lives(table, self._after, c) if self._after.present[c] else before
        if before:
            return _UPDATE if after else _DELETE
        return _INSERT if after else 0

    def _lives(self, table: Table, image: Image, c: int) -> bool:
        """Whether the image is of a current row."""
        if not image.present[c]:
            raise self._bad(
                table, "the log does not say whether the row is a current one of this system-versioned table"
            )
        return self._seems_current(image, True, c)

    def _seems_current(self, image: Image, given: bool, c: int) -> bool:
        """Whether the image is given, and its column ``c`` holds the ROW END of a current row."""
        return (
            given and bool(image.present[c]) and bytes(image.out[image.starts[c] + 4 : image.starts[c + 1]]) in _FOREVER
        )

    def _bad(self, table: Table, problem: str) -> DecodeError:
        return DecodeError(f"{table.name}: {problem}")
