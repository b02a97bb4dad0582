"""Encodes the rows in pgoutput messages as updates. Hot: compiled where possible.

    Insert := 'I' id of the table (4) 'N' tuple
    Update := 'U' id of the table (4) ['K' key tuple | 'O' tuple] 'N' tuple
    Delete := 'D' id of the table (4) ('K' key tuple | 'O' tuple)

An update has an old tuple only if the key changed, or with REPLICA IDENTITY FULL. From the images,
`datastores.common.encode.row_updates` makes the update.
"""

from __future__ import annotations

from typing import Final

from datastores.common.encode.row_updates import RowUpdates
from datastores.common.encode.wire_bytes import copy_bytes, put_varint, varint_size
from datastores.postgres.decode.row_image import Image
from datastores.postgres.decode.table import Table
from wormhole.model.errors import DecodeError

__all__ = ["Rows"]

# The operations (wormhole.wire.v1.Op).
_INSERT: Final = 1
_UPDATE: Final = 2
_DELETE: Final = 3
_READ: Final = 8

# Tags of Update's fields.
_AFTER: Final = 0x1A
_BEFORE: Final = 0x22

_V_BYTES: Final = 0x0A
_V_TEXT: Final = 0x12
_V_BOOL: Final = 0x30

_NEW: Final = 0x4E
_OLD: Final = 0x4F
_OLD_KEY_TUPLE: Final = 0x4B


class Rows:
    """Encodes rows in order into ``updates``. A method that raises :class:`DecodeError` adds nothing."""

    def __init__(self, max_update_bytes: int, hash_shards: int, room: int) -> None:
        self._before = Image(max_update_bytes)
        self._after = Image(max_update_bytes)
        self._composed = RowUpdates(self._before, self._after, max_update_bytes, hash_shards, room)
        self.updates = self._composed.updates

    @property
    def too_large(self) -> int:
        """The number of updates without their values."""
        return int(self._composed.too_large)

    def insert(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the insert of the row at ``at``, the offset after the table's id."""
        at = self._new(data, at, end, table)
        self._end_of_row(table, at, end)
        self._composed.change(table, _INSERT, False)

    def existing(self, data: bytes, at: int, end: int, table: Table, left_out: bool) -> int:
        """Encode an existing row. Returns the bytes of its key. ``left_out``: its values are left out."""
        at = self._new(data, at, end, table)
        self._end_of_row(table, at, end)
        after = self._after
        after.too_large = after.too_large or left_out
        self._composed.add(table, _READ, False, True, False, 0)
        size = 0
        for i in range(len(table.key)):
            c = table.key[i]
            size += after.starts[c + 1] - after.starts[c]
        return size

    def update(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the change of a row."""
        p = data
        old = at < end and p[at] != _NEW
        if old:
            at = self._read_old(data, at, end, table)
        at = self._new(data, at, end, table)
        self._end_of_row(table, at, end)
        after = self._after
        key = table.key
        for i in range(len(key)):
            if after.present[key[i]] == 0 and not (old and self._before.present[key[i]]):
                raise self._bad(table, "the key of a changed row is not in the log")
        self._composed.change(table, _UPDATE, old)

    def delete(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the delete of a row."""
        if at == end:
            raise self._bad(table, "the tuple of a deleted row is missing")
        at = self._read_old(data, at, end, table)
        self._end_of_row(table, at, end)
        key = table.key
        for i in range(len(key)):
            if self._before.present[key[i]] == 0:
                raise self._bad(table, "the key of a deleted row is not in the log")
        self._composed.change(table, _DELETE, False)

    def message(self, schema: int, shard: int, prefix: bytes, content: bytes, transactional: bool) -> None:
        """Encode a logical message as the insert of a row with these values."""
        size = len(prefix)
        entry = 1 + varint_size(size) + size
        whole = 1 + varint_size(len(content)) + len(content)
        large = size + len(content) > self._composed.max_update_bytes
        body = 4 if large else 2 + 1 + varint_size(entry) + entry + 1 + varint_size(whole) + whole + 4
        at = self.updates.begin(body)
        out = self.updates.out
        out[at] = 0x08
        out[at + 1] = _INSERT
        at += 2
        if large:
            self._composed.too_large += 1
            out[at] = 0x38
            out[at + 1] = 1
            at += 2
        else:
            at = self._put_value(at, _V_TEXT, prefix, entry)
            at = self._put_value(at, _V_BYTES, content, whole)
            out[at] = _AFTER
            out[at + 1] = 2
            out[at + 2] = _V_BOOL
            out[at + 3] = transactional
            at += 4
        self.updates.end(at, schema, shard)

    def _put_value(self, at: int, tag: int, value: bytes, entry: int) -> int:
        out = self.updates.out
        out[at] = _AFTER
        at = put_varint(out, at + 1, entry)
        out[at] = tag
        at = put_varint(out, at + 1, len(value))
        return copy_bytes(out, at, value, 0, len(value))

    def _new(self, data: bytes, at: int, end: int, table: Table) -> int:
        p = data
        if at >= end or p[at] != _NEW:
            raise self._bad(table, "the new tuple of a row is missing")
        return self._after.read(data, at + 1, end, table, _AFTER, False)

    def _read_old(self, data: bytes, at: int, end: int, table: Table) -> int:
        p = data
        form = p[at]
        if form != _OLD and form != _OLD_KEY_TUPLE:
            raise self._bad(table, f"a tuple of kind 0x{form:02x} is not known")
        return self._before.read(data, at + 1, end, table, _BEFORE, form == _OLD_KEY_TUPLE)

    def _end_of_row(self, table: Table, at: int, end: int) -> None:
        if at != end:
            raise self._bad(table, f"{end - at} bytes follow a row")

    def _bad(self, table: Table, problem: str) -> DecodeError:
        return DecodeError(f"{table.name}: {problem}", tables=(table.name,))
