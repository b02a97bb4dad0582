"""Rows events to update bytes. Hot: compiled where possible.

Layout, by MySQL's documentation of ``Rows_event``; version 2 has the extra data, MariaDB writes version 1::

    body   := table_id (6) flags (2) [length of the extra data, itself included (2), extra data] columns (packed)
              present (bitmap, lowest bit first) [present after an update (likewise)] row*
    row    := image, of an update: image before, image after       image: see `datastores.mysql.decode.row_image`

Every update has the wire's form, as `wormhole.wire.rows.encode_row` would write it: key, after, before, and the
key before where the update changed it.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from zlib_ng.zlib_ng import crc32

from datastores.common.encode.buffer import copy_into, grow
from datastores.common.encode.piece import HASHED
from datastores.mysql.decode.columns import Columns
from datastores.mysql.decode.row_image import Image, put_varint
from datastores.mysql.decode.table_map import Layout
from wormhole.model.errors import DecodeError

__all__ = ["Rows", "Table"]

# Kinds of rows events, and what an update is on the wire (wormhole.wire.v1.Op).
_INSERT: Final = 1
_UPDATE: Final = 2
_DELETE: Final = 3
_TRUNCATE: Final = 4

# Tags of Update's fields.
_KEY: Final = 0x12
_AFTER: Final = 0x1A
_BEFORE: Final = 0x22
_OLD_KEY: Final = 0x2A

# ROW END of a current row: the last moment of a TIMESTAMP, before and from MariaDB 11.5 on.
_FOREVER: Final = frozenset({b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999"})
_MAYBE_VERSIONED: Final = (
    "it may have been system-versioned when this was logged, and the server no longer has it as it was. Name "
    "it in history_tables to get "
    "its rows as they are logged, with those of its history, or in skip_tables, and restart the publisher"
)

_V_BYTES: Final = 0x0A
_HASHED: Final = HASHED
_LIMIT: Final = (1 << 31) - 1
_SLICED: Final = 1 << 16
_COPIED: Final = 256 if __file__.endswith(".py") else _SLICED  # see `row_image`
_MOST: Final = 1 << 20
"""Bytes that the rows of an event may come to in one go, beside twice its own: a few bytes of log can become many of
updates."""
# What is kept for the next piece: more was for one large row.
_KEPT_ROOM: Final = 1 << 20
_KEPT_ROWS: Final = 1 << 16


class Table:
    """A table map that is known: ``body`` are its bytes, ``columns`` is ``None`` when its rows are the caller's
    business.

    ``row_end``: position of the column that says until when a row of a system-versioned table was current; -1: it is
    none. ``maybe``: columns of which one may be that column, where that is unknown; rows that look like a current one
    are refused.
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
        self.body = body
        self.row_end = row_end
        self.maybe = maybe
        if shard == _HASHED and not (layout and layout.key):
            raise ValueError("a table without a primary key cannot be split by the hash of its key")
        self.columns = None if layout is None else Columns(layout)
        self.count = len(layout.kinds) if layout else 0
        self.name = layout.table if layout else ""
        self.schema = schema
        self.shard = shard
        self.key = array("I", layout.key if layout else ())


def _copy(out: bytearray, at: int, source: bytearray, start: int, end: int) -> int:
    if end - start <= _COPIED:
        o = out
        s = source
        for i in range(end - start):
            o[at + i] = s[start + i]
    elif end - start <= _SLICED:
        out[at : at + end - start] = source[start:end]
    else:
        copy_into(out, at, source, start, end)
    return at + end - start


def _same_cell(a: Image, b: Image, c: int) -> bool:
    """Whether column ``c`` has the same value in both images; the tags do not matter."""
    a_start = a.starts[c] + 1
    b_start = b.starts[c] + 1
    size = a.starts[c + 1] - a_start
    if size != b.starts[c + 1] - b_start:
        return False
    p = a.out
    q = b.out
    i = 0
    while i < size and p[a_start + i] == q[b_start + i]:
        i += 1
    return i == size


def _copy_cell(out: bytearray, at: int, image: Image, c: int, tag: int) -> int:
    """The entry of column ``c`` under another tag."""
    end = _copy(out, at, image.out, image.starts[c], image.starts[c + 1])
    out[at] = tag
    return end


def _bits(data: bytes, count: int) -> int:
    """How many of the first ``count`` bits are set."""
    p = data
    n = 0
    for i in range(count):
        n += p[i >> 3] >> (i & 7) & 1
    return n


class Rows:
    """Encodes rows one after the other.

    ``updates`` of them so far take ``used`` bytes of ``out``; ``ends``, ``schemas`` and ``shards`` are the columns of
    `Piece`. ``too_large``: how many updates went without their values.

    An event that is not held whole is opened with its first bytes. Its rows follow in stretches (`stretch`); of a row
    that no stretch holds, the images come one by one (`image`), and `row` encodes it. ``columns``, ``op``, ``partial``,
    and of each image the bits and the ``count`` of its columns, are those of the event that was opened last.
    """

    def __init__(self, max_update_bytes: int, hash_shards: int, room: int) -> None:
        if not 0 < max_update_bytes < 1 << 30:
            raise ValueError(f"max_update_bytes is {max_update_bytes}: it has to lie between 1 and 1 GiB")
        self.max_update_bytes = max_update_bytes
        self.hash_shards = hash_shards
        self.updates = 0
        self.used = 0
        self.too_large = 0
        self._before = Image(max_update_bytes)
        self._after = Image(max_update_bytes)
        self._room = room
        self.out = bytearray(room)
        self._capacity = 1024
        self._columns()
        self.op = 0
        self.partial = False
        self.columns: Any = None  # `Columns`, once an event was opened
        self.before_bits = self.after_bits = b""
        self.before_count = self.after_count = 0
        self._table: Any = None  # its `Table`

    def _columns(self) -> None:
        self.ends = array("I", bytes(4 * self._capacity))
        self.schemas = array("I", bytes(4 * self._capacity))
        self.shards = array("I", bytes(4 * self._capacity))
        self._ends = self.ends
        self._schemas = self.schemas
        self._shards = self.shards

    def event(self, data: bytes, at: int, end: int, table: Table, op: int, extra: bool, partial: bool) -> int:
        """Encode the rows of the event whose body, after table id and flags, is ``data[at:end]``; returns the place
        after them.

        It comes before ``end`` where the rows take much more room than the event: the others are for `stretch`.
        ``op``: of `wormhole.wire.v1.Op`; ``extra``: the event is of version 2; ``partial``: it may hold changes of JSON
        documents. Raises :class:`DecodeError` naming table and field; then nothing of the event is kept.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"rows {at}:{end} of {len(data)} bytes are out of range")
        updates = self.updates
        used = self.used
        too_large = self.too_large
        try:
            at = self.open(data, at, end, table, op, extra, partial)
            most = used + _MOST + 2 * (end - at)
            while True:
                row = at
                at = self._one(data, at, end)
                if at >= end or self.used >= most:
                    return at
                if at == row:
                    raise self._bad(table, f"{end - at} bytes follow rows that have none")
        except DecodeError:
            self._undo(updates, used, too_large)
            raise

    def stretch(self, data: bytes, at: int, end: int, most: int, last: bool) -> int:
        """Encode the rows in ``data[at:end]``, up to about ``most`` bytes in all; returns the place before the first
        that is left.

        ``last``: no bytes follow. Otherwise a row that cannot be decoded may only be cut, so it is left. Raises
        :class:`DecodeError`; then nothing of the row that it is about is kept.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT or self._table is None:
            raise ValueError(f"rows {at}:{end} of {len(data)} bytes are out of range")
        while at < end and self.used < most:
            row = at
            updates = self.updates
            used = self.used
            too_large = self.too_large
            try:
                at = self._one(data, at, end)
            except DecodeError:
                self._undo(updates, used, too_large)
                if last:
                    raise
                return row
            if at == row:
                self._undo(updates, used, too_large)
                raise self._bad(self._table, f"{end - at} bytes follow rows that have none")
        return at

    def _undo(self, updates: int, used: int, too_large: int) -> None:
        """Forget what was encoded since these were the counts."""
        self.updates = updates
        self.used = used
        self.too_large = too_large

    def image(self, data: bytes, after: bool, left_out: bool, source: bytes) -> None:
        """Read the one image in ``data`` for `row`.

        ``left_out``: values of it stand there as NULL, because the row is too large.

        ``source``: what the image before was read from, where this one may hold changes of JSON documents.
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
        """Encode the row whose images were read."""
        self._meant(self._table, self.op)
        self._before.release()
        self._after.release()

    def before_used(self) -> int:
        """Bytes of the image before."""
        return self._before.used

    def open(self, data: bytes, at: int, end: int, table: Table, op: int, extra: bool, partial: bool) -> int:
        """Read what precedes the rows in ``data[at:end]``; returns the place of the first row. See `event`."""
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
        """Encode the row at ``at`` of the event that is open; returns the place after it."""
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
        """Encode the row that the images hold, where it means anything for the current rows."""
        if table.row_end < 0 and not table.maybe:
            self._row(table, op)
        else:
            meant = self._current(table, op)
            if meant:
                self._row(table, meant)

    def truncate(self, schema: int, shard: int) -> None:
        """Encode that all rows of a table are gone."""
        n = self._begin(2)
        out = self.out
        out[n] = 0x08
        out[n + 1] = _TRUNCATE
        self.used = n + 2
        self._end(schema, shard)

    def _current(self, table: Table, op: int) -> int:
        """What the images mean for the current rows of a system-versioned table; 0: nothing, for they are about
        history.

        MariaDB logs a DELETE as an update that ends the row, and beside each update an insert of the row as it was
        before.
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
        """Whether the image is given and its column ``c`` has the value of a ROW END that has not come."""
        return (
            given and bool(image.present[c]) and bytes(image.out[image.starts[c] + 4 : image.starts[c + 1]]) in _FOREVER
        )

    def _row(self, table: Table, op: int) -> None:
        """Encode the row that the images hold."""
        shard = table.shard
        if op == _UPDATE:
            old_shard = shard
            if shard == _HASHED:
                shard = self._hash_shard(table, True, True)
                old_shard = self._hash_shard(table, False, True)
            if shard == old_shard:
                self._update(table, op, True, True, True, shard)
            else:
                self._update(table, _DELETE, True, False, False, old_shard)
                self._update(table, _INSERT, False, True, True, shard)
        else:
            with_after = op == _INSERT
            if shard == _HASHED:
                shard = self._hash_shard(table, with_after, False)
            self._update(table, op, not with_after, with_after, False, shard)

    def _update(self, table: Table, op: int, with_before: bool, with_after: bool, merged: bool, shard: int) -> None:
        """Encode one update of the images that are asked for.

        ``merged``: columns that the image after the change does not have are as they were before it.
        """
        before = self._before
        after = self._after
        key = table.key
        old_key = False
        key_size = 0
        old_key_size = 0
        for i in range(len(key)):
            c = key[i]
            if with_after and not (merged and after.present[c] == 0):
                key_size += after.starts[c + 1] - after.starts[c]
                if op == _UPDATE and before.present[c]:
                    old_key = old_key or not _same_cell(after, before, c)
            else:
                key_size += before.starts[c + 1] - before.starts[c]
            if op == _UPDATE:
                old_key_size += before.starts[c + 1] - before.starts[c]
        patched = merged and after.absent > 0
        values = before.used if with_before else 0
        large = with_before and before.too_large
        if with_after:
            large = large or after.too_large
            values += self._patched_size(table) if patched else after.used
        large = large or values > self.max_update_bytes
        body = 2 + key_size + (old_key_size if old_key else 0) + (2 if large else values)
        if body > _LIMIT - self.used - 8:
            raise self._bad(table, "its updates take more than 2 GiB")
        at = self._begin(body)
        out = self.out
        out[at] = 0x08
        out[at + 1] = op
        at += 2
        for i in range(len(key)):
            c = key[i]
            image = after if with_after and not (merged and after.present[c] == 0) else before
            at = _copy_cell(out, at, image, c, _KEY)
        if not large:
            if patched:
                at = self._put_patched(table, at)
            elif with_after:
                at = _copy(out, at, after.out, 0, after.used)
            if with_before:
                at = _copy(out, at, before.out, 0, before.used)
        if old_key:
            for i in range(len(key)):
                at = _copy_cell(out, at, before, key[i], _OLD_KEY)
        if large:
            self.too_large += 1
            out[at] = 0x38
            out[at + 1] = 1
            at += 2
        self.used = at
        self._end(table.schema, shard)

    def _patched_size(self, table: Table) -> int:
        before = self._before
        after = self._after
        size = 0
        for c in range(table.count):
            image = before if after.present[c] == 0 and before.present[c] else after
            size += image.starts[c + 1] - image.starts[c]
        return size

    def _put_patched(self, table: Table, at: int) -> int:
        before = self._before
        after = self._after
        for c in range(table.count):
            at = _copy_cell(self.out, at, before if after.present[c] == 0 and before.present[c] else after, c, _AFTER)
        return at

    def _hash_shard(self, table: Table, with_after: bool, merged: bool) -> int:
        """`wormhole.model.sharding`: CRC-32 of the key's values, modulo the number of shards."""
        crc = 0
        for i in range(len(table.key)):
            c = table.key[i]
            image = self._after if with_after and not (merged and self._after.present[c] == 0) else self._before
            out = image.out
            at = image.starts[c] + 1
            while out[at] > 0x7F:
                at += 1
            at += 1
            if len(table.key) == 1 and out[at] == _V_BYTES:
                at += 1
                while out[at] > 0x7F:
                    at += 1
                at += 1
            crc = crc32(out[at : image.starts[c + 1]], crc)
        return crc % self.hash_shards

    def _begin(self, body: int) -> int:
        """Make room for an update of ``body`` bytes and write what precedes it; returns its place."""
        if self.used + body + 6 > self._room:
            self._room = grow(self.out, self.used + body + 6)
        self.out[self.used] = 0x0A
        return put_varint(self.out, self.used + 1, body)

    def _end(self, schema: int, shard: int) -> None:
        n = self.updates
        if n == self._capacity:
            ends, schemas, shards = self.ends, self.schemas, self.shards
            self._capacity = 2 * n
            self._columns()
            self.ends[:n] = ends
            self.schemas[:n] = schemas
            self.shards[:n] = shards
        self._ends[n] = self.used
        self._schemas[n] = schema
        self._shards[n] = shard
        self.updates = n + 1

    def back(self, updates: int) -> None:
        """Forget all but the first ``updates``."""
        self.updates = updates
        self.used = self.ends[updates - 1] if updates else 0

    def drop(self, updates: int) -> None:
        """Forget the first ``updates``, which were taken; the others move to the front."""
        n = self.updates - updates
        if n:
            start = self.ends[updates - 1] if updates else 0
            self.out[: self.used - start] = self.out[start : self.used]
            self.used -= start
            for i in range(n):
                self._ends[i] = self._ends[updates + i] - start
                self._schemas[i] = self._schemas[updates + i]
                self._shards[i] = self._shards[updates + i]
            self.updates = n
            return
        self.updates = self.used = 0
        if self._room > _KEPT_ROOM:
            self._room = _KEPT_ROOM
            self.out = bytearray(_KEPT_ROOM)
        if self._capacity > _KEPT_ROWS:
            self._capacity = _KEPT_ROWS
            self._columns()

    def _bad(self, table: Table, problem: str) -> DecodeError:
        return DecodeError(f"{table.name}: {problem}")
