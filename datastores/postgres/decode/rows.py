"""Rows of pgoutput to update bytes. Hot: compiled where possible.

    Insert := 'I' id of the table (4) 'N' tuple
    Update := 'U' id of the table (4) ['K' key tuple | 'O' tuple] 'N' tuple
    Delete := 'D' id of the table (4) ('K' key tuple | 'O' tuple)

An update has an old tuple only where the key changed, or with REPLICA IDENTITY FULL. Every update has the wire's form,
as `wormhole.wire.rows.encode_row` would write it: key, after, before, and the key before where the update changed it.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from datastores.common.encode.piece import HASHED
from datastores.common.encode.updates import Updates
from datastores.common.encode.wire_bytes import copy_bytes, put_varint, varint_size
from datastores.postgres.decode.row_image import Image
from datastores.postgres.decode.table import Table
from wormhole.model.errors import DecodeError

__all__ = ["Rows"]

# What an update is on the wire (wormhole.wire.v1.Op).
_INSERT: Final = 1
_UPDATE: Final = 2
_DELETE: Final = 3
_READ: Final = 8

# Tags of Update's fields.
_KEY: Final = 0x12
_AFTER: Final = 0x1A
_BEFORE: Final = 0x22
_OLD_KEY: Final = 0x2A

_V_BYTES: Final = 0x0A
_V_TEXT: Final = 0x12
_V_BOOL: Final = 0x30
_HASHED: Final = HASHED
_LIMIT: Final = (1 << 31) - 1

_NEW: Final = 0x4E
_OLD: Final = 0x4F
_OLD_KEY_TUPLE: Final = 0x4B


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
    end = copy_bytes(out, at, image.out, image.starts[c], image.starts[c + 1])
    out[at] = tag
    return end


class Rows:
    """Encodes rows one after the other into ``updates``. ``too_large``: how many went without their values."""

    def __init__(self, max_update_bytes: int, hash_shards: int, room: int) -> None:
        if not 0 < max_update_bytes < 1 << 30:
            raise ValueError(f"max_update_bytes is {max_update_bytes}: it has to lie between 1 and 1 GiB")
        self.max_update_bytes = max_update_bytes
        self.hash_shards = hash_shards
        self.updates = Updates(room)
        self.too_large = 0
        self._before = Image(max_update_bytes)
        self._after = Image(max_update_bytes)

    def insert(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the row at ``at``, which is the place behind the table's id; as all of these, nothing is kept where
        it raises :class:`DecodeError`."""
        at = self._new(data, at, end, table)
        self._end_of_row(table, at, end)
        shard = table.shard
        if shard == _HASHED:
            shard = self._hash_shard(table, True, False)
        self._update(table, _INSERT, False, True, False, shard)

    def existing(self, data: bytes, at: int, end: int, table: Table, left_out: bool) -> int:
        """Encode a row that the table holds, likewise; returns the bytes that its key takes. ``left_out``: it goes
        without its values."""
        at = self._new(data, at, end, table)
        self._end_of_row(table, at, end)
        after = self._after
        after.too_large = after.too_large or left_out
        self._update(table, _READ, False, True, False, 0)
        size = 0
        for i in range(len(table.key)):
            c = table.key[i]
            size += after.starts[c + 1] - after.starts[c]
        return size

    def update(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the change of a row, likewise."""
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
        shard = old_shard = table.shard
        if shard == _HASHED:
            shard = old_shard = self._hash_shard(table, True, old)
            if old:
                old_shard = self._hash_shard(table, False, False)
        if shard == old_shard:
            self._update(table, _UPDATE, old, True, old, shard)
        else:
            self._update(table, _DELETE, True, False, False, old_shard)
            self._update(table, _INSERT, False, True, True, shard)

    def delete(self, data: bytes, at: int, end: int, table: Table) -> None:
        """Encode the end of a row, likewise."""
        if at == end:
            raise self._bad(table, "the tuple of a deleted row is missing")
        at = self._read_old(data, at, end, table)
        self._end_of_row(table, at, end)
        key = table.key
        for i in range(len(key)):
            if self._before.present[key[i]] == 0:
                raise self._bad(table, "the key of a deleted row is not in the log")
        shard = table.shard
        if shard == _HASHED:
            shard = self._hash_shard(table, False, False)
        self._update(table, _DELETE, True, False, False, shard)

    def message(self, schema: int, shard: int, prefix: bytes, content: bytes, transactional: bool) -> None:
        """Encode a logical message: the insert of a row with these values."""
        size = len(prefix)
        entry = 1 + varint_size(size) + size
        whole = 1 + varint_size(len(content)) + len(content)
        large = size + len(content) > self.max_update_bytes
        body = 4 if large else 2 + 1 + varint_size(entry) + entry + 1 + varint_size(whole) + whole + 4
        at = self.updates.begin(body)
        out = self.updates.out
        out[at] = 0x08
        out[at + 1] = _INSERT
        at += 2
        if large:
            self.too_large += 1
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

    def _current(self, c: int, merged: bool) -> Image:
        """The image that has column ``c`` after the change; ``merged``: what the new tuple does not have is as it was,
        and stands in the old one."""
        if merged and self._after.present[c] == 0 and self._before.present[c]:
            return self._before
        return self._after

    def _update(self, table: Table, op: int, with_before: bool, with_after: bool, merged: bool, shard: int) -> None:
        """Encode one update of the images that are asked for."""
        before = self._before
        after = self._after
        key = table.key
        changes_key = op == _UPDATE and with_before
        old_key = False
        key_size = 0
        old_key_size = 0
        for i in range(len(key)):
            c = key[i]
            image = self._current(c, merged) if with_after else before
            key_size += image.starts[c + 1] - image.starts[c]
            if changes_key:
                old_key_size += before.starts[c + 1] - before.starts[c]
                old_key = old_key or (before.present[c] != 0 and not _same_cell(image, before, c))
        patched = merged and after.absent > 0
        values = before.used if with_before else 0
        large = with_before and before.too_large
        if with_after:
            large = large or after.too_large
            if patched:
                for c in range(table.count):
                    image = self._current(c, True)
                    values += image.starts[c + 1] - image.starts[c]
            else:
                values += after.used
        large = large or values > self.max_update_bytes
        body = 2 + key_size + (old_key_size if old_key else 0) + (2 if large else values)
        if body > _LIMIT - self.updates.used - 8:
            raise self._bad(table, "its updates take more than 2 GiB")
        at = self.updates.begin(body)
        out = self.updates.out
        out[at] = 0x08
        out[at + 1] = op
        at += 2
        for i in range(len(key)):
            c = key[i]
            at = _copy_cell(out, at, self._current(c, merged) if with_after else before, c, _KEY)
        if not large:
            if patched and with_after:
                for c in range(table.count):
                    at = _copy_cell(out, at, self._current(c, True), c, _AFTER)
            elif with_after:
                at = copy_bytes(out, at, after.out, 0, after.used)
            if with_before:
                at = copy_bytes(out, at, before.out, 0, before.used)
        if old_key:
            for i in range(len(key)):
                at = _copy_cell(out, at, before, key[i], _OLD_KEY)
        if large:
            self.too_large += 1
            out[at] = 0x38
            out[at + 1] = 1
            at += 2
        self.updates.end(at, table.schema, shard)

    def _hash_shard(self, table: Table, with_after: bool, merged: bool) -> int:
        """`wormhole.model.sharding`: CRC-32 of the key's values, modulo the number of shards."""
        crc = 0
        for i in range(len(table.key)):
            c = table.key[i]
            image = self._current(c, merged) if with_after else self._before
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

    def _bad(self, table: Table, problem: str) -> DecodeError:
        return DecodeError(f"{table.name}: {problem}", tables=(table.name,))
