"""Encodes the updates of changed rows from their images before and after. Hot: compiled where possible.

An update has the form that `wormhole.wire.rows.encode_row` writes: key, after, before, and the former key if changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from zlib_ng.zlib_ng import crc32

from datastores.common.encode.entries import Entries
from datastores.common.encode.piece import HASHED
from datastores.common.encode.updates import Updates
from datastores.common.encode.wire_bytes import copy_bytes
from wormhole.model.errors import DecodeError

__all__ = ["RowTable", "RowUpdates"]

# The operations (wormhole.wire.v1.Op).
_INSERT: Final = 1
_UPDATE: Final = 2
_DELETE: Final = 3

# Tags of Update's fields.
_KEY: Final = 0x12
_AFTER: Final = 0x1A
_OLD_KEY: Final = 0x2A

_V_BYTES: Final = 0x0A
_HASHED: Final = HASHED
_SHORT: Final = 256
_LIMIT: Final = (1 << 31) - 1


class RowTable:
    """The table's properties that encoding needs. ``count``: the number of columns. ``key``: the positions of the key's
    columns. ``schema``, ``shard``: ordinals."""

    def __init__(self, name: str, count: int, key: Sequence[int], schema: int, shard: int) -> None:
        self.name = name
        self.count = count
        self.key = array("I", key)
        self.schema = schema
        self.shard = shard


def _same_cell(a: Entries, b: Entries, c: int) -> bool:
    """Whether column ``c`` has the same value in both images. Tags are not compared."""
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


def _copy_cell(out: bytearray, at: int, image: Entries, c: int, tag: int) -> int:
    """Copy the entry of column ``c`` under another tag. Returns the offset after it."""
    start = image.starts[c]
    size = image.starts[c + 1] - start
    if size > _SHORT:
        copy_bytes(out, at, image.out, start, start + size)
    else:
        o = out
        p = image.out
        for i in range(size):
            o[at + i] = p[start + i]
    out[at] = tag
    return at + size


class RowUpdates:
    """Encodes the images ``before`` and ``after`` into ``updates``. ``too_large``: the number of updates that were
    encoded without their values.

    ``merged`` in the methods: the image before the change is given, and supplies the columns that the image after the
    change lacks.
    """

    def __init__(self, before: Entries, after: Entries, max_update_bytes: int, hash_shards: int, room: int) -> None:
        if not 0 < max_update_bytes < 1 << 30:
            raise ValueError(f"max_update_bytes is {max_update_bytes}: it has to lie between 1 and 1 GiB")
        self.max_update_bytes = max_update_bytes
        self.hash_shards = hash_shards
        self.updates = Updates(room)
        self.too_large = 0
        self._before = before
        self._after = after

    def change(self, table: RowTable, op: int, merged: bool) -> None:
        """Encode a row's change. If its key moves to another shard, encode a delete there and an insert here."""
        with_after = op != _DELETE
        shard = old_shard = table.shard
        if shard == _HASHED:
            shard = old_shard = self._hash_shard(table, with_after, merged)
            if merged:
                old_shard = self._hash_shard(table, False, False)
        if shard == old_shard:
            self.add(table, op, merged or not with_after, with_after, merged, shard)
        else:
            self.add(table, _DELETE, True, False, False, old_shard)
            self.add(table, _INSERT, False, True, True, shard)

    def add(self, table: RowTable, op: int, with_before: bool, with_after: bool, merged: bool, shard: int) -> None:
        """Encode one update with the images that the flags name."""
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
        patched = merged and with_after and after.absent > 0
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
            raise DecodeError(f"{table.name}: its updates take more than 2 GiB", tables=(table.name,))
        at = self.updates.begin(body)
        out = self.updates.out
        out[at] = 0x08
        out[at + 1] = op
        at += 2
        for i in range(len(key)):
            c = key[i]
            at = _copy_cell(out, at, self._current(c, merged) if with_after else before, c, _KEY)
        if not large:
            if patched:
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

    def _current(self, c: int, merged: bool) -> Entries:
        """The image that holds column ``c`` as it is after the change."""
        if merged and self._after.present[c] == 0 and self._before.present[c]:
            return self._before
        return self._after

    def _hash_shard(self, table: RowTable, with_after: bool, merged: bool) -> int:
        """The row's hash shard, as `wormhole.model.sharding` defines it: CRC-32 of the key, modulo the shards."""
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
