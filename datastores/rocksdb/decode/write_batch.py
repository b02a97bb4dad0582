"""Encodes RocksDB's write batches as updates. Hot: compiled where possible.

A record of the WAL is one write batch, which group commit may have joined from several. It becomes one transaction::

    batch := sequence (8) count (4) entry*
    entry := kind (1) [column family, varint32] operand*     the tables below list kinds and operands

``count`` is the number of entries with a sequence number: all but log data, no-ops and the markers of two-phase commit.
Each step of two-phase commit has a record of its own, or shares a record with other entries::

    prepare  := BEGIN_PREPARE entry* END_PREPARE(xid)      has no sequence numbers; its commit applies it
    commit   := entry* (COMMIT(xid) | COMMIT_AT(timestamp, xid))
    rollback := ROLLBACK(xid)

The encoder encodes only plain records. It returns a status for any other record and keeps no part of it. The caller can
do I/O: it finds the name of a column family, or reads the prepared entries.
"""

from __future__ import annotations

from array import array
from typing import Final
from zlib import crc32

from datastores.common.encode.buffer import copy_into, grow
from datastores.common.encode.piece import ALL_SHARDS, HASHED, Piece
from datastores.rocksdb.decode.log_format import FULL, LAST, Frames
from datastores.rocksdb.decode.rare import rare_key, rare_update
from wormhole.model.errors import DecodeError

__all__ = ["Encoder", "Status"]

_HEADER: Final = 12


class Status:
    """Why the encoder stopped."""

    OK: Final = 0
    MORE: Final = 1
    """The data ends within an entry. The entry has ``need`` bytes (0: unknown)."""
    SKIP: Final = 2
    """The rest of a too large update follows: skip ``need`` bytes."""
    FAMILY: Final = 3
    """Column family ``family`` is unknown: call `Encoder.add_family`, then continue."""
    MARKER: Final = 4
    """A marker of two-phase commit."""
    GAP: Final = 5
    """The sequence number is above the expected one."""
    BACK: Final = 6
    """The sequence number is below the expected one."""
    BROKEN: Final = 7
    """The bytes are no batch: ``problem`` names the field and the fault."""
    PER_BATCH: Final = 8
    """The database numbers batches instead of keys (write-prepared or write-unprepared transactions)."""


# Private copies of the constants, because the .pxd makes C integers of them that no other module can import.
_FULL: Final = FULL
_LAST: Final = LAST
_HASHED: Final = HASHED
_ALL_SHARDS: Final = ALL_SHARDS
_LIMIT: Final = (1 << 31) - 1
_S_OK: Final = Status.OK
_S_MORE: Final = Status.MORE
_S_SKIP: Final = Status.SKIP
_S_FAMILY: Final = Status.FAMILY
_S_MARKER: Final = Status.MARKER
_S_GAP: Final = Status.GAP
_S_BACK: Final = Status.BACK
_S_BROKEN: Final = Status.BROKEN
_S_PER_BATCH: Final = Status.PER_BATCH

# Operands of an entry by its kind. 0: unknown kind.
_PAIR: Final = 1  # key, value
_KEY: Final = 2  # key
_DATA: Final = 3  # log data: has no sequence number, and is no update
_NOOP: Final = 4
_MARKER: Final = 5  # two-phase commit
_PER_BATCH: Final = 6

_KINDS: Final = (
    # kind, operands, operation (wormhole.wire.v1.Op), has a column family, rare
    (0x00, _KEY, 3, 0, 0),  # deletion
    (0x01, _PAIR, 5, 0, 0),  # value
    (0x02, _PAIR, 6, 0, 0),  # merge
    (0x03, _DATA, 0, 0, 0),
    (0x04, _KEY, 3, 1, 0),
    (0x05, _PAIR, 5, 1, 0),
    (0x06, _PAIR, 6, 1, 0),
    (0x07, _KEY, 3, 0, 0),  # single deletion
    (0x08, _KEY, 3, 1, 0),
    (0x09, _MARKER, 0, 0, 0),  # begin prepare
    (0x0A, _MARKER, 0, 0, 0),  # end prepare
    (0x0B, _MARKER, 0, 0, 0),  # commit
    (0x0C, _MARKER, 0, 0, 0),  # rollback
    (0x0D, _NOOP, 0, 0, 0),
    (0x0E, _PAIR, 7, 1, 0),  # range deletion: begin, end
    (0x0F, _PAIR, 7, 0, 0),
    (0x10, _PAIR, 5, 1, 1),  # blob index
    (0x11, _PAIR, 5, 0, 1),
    (0x12, _PER_BATCH, 0, 0, 0),  # begin persisted prepare
    (0x13, _PER_BATCH, 0, 0, 0),  # begin unprepared
    (0x14, _KEY, 3, 0, 0),  # deletion with timestamp
    (0x15, _MARKER, 0, 0, 0),  # commit with timestamp
    (0x16, _PAIR, 5, 0, 1),  # wide columns
    (0x17, _PAIR, 5, 1, 1),
    (0x18, _PAIR, 5, 0, 1),  # value with a preferred sequence number (timed put)
    (0x19, _PAIR, 5, 1, 1),
)
_by_kind = {kind: rest for kind, *rest in _KINDS}
_OPERANDS: bytes = bytes(_by_kind[k][0] if k in _by_kind else 0 for k in range(256))
_OP: bytes = bytes(_by_kind[k][1] if k in _by_kind else 0 for k in range(256))
_HAS_FAMILY: bytes = bytes(_by_kind[k][2] if k in _by_kind else 0 for k in range(256))
_RARE: bytes = bytes(_by_kind[k][3] if k in _by_kind else 0 for k in range(256))

# The buffer sizes that the encoder keeps after `take`. A larger buffer was needed for one large record.
_KEPT_ROOM: Final = 1 << 20
_KEPT_ROWS: Final = 1 << 16

_SLICED: Final = 1 << 16  # the most bytes for which an intermediate copy costs little
_TRUNCATED: Final = -1
_MALFORMED: Final = -2


def _uniform(column: array[int], n: int) -> bool:
    """Whether the first ``n`` entries are equal."""
    for i in range(1, n):
        if column[i] != column[0]:
            return False
    return n > 0


def _varint_size(n: int) -> int:
    size = 1
    while n > 0x7F:
        n >>= 7
        size += 1
    return size


def _put_varint(out: bytearray, at: int, n: int) -> int:
    while n > 0x7F:
        out[at] = n & 0x7F | 0x80
        n >>= 7
        at += 1
    out[at] = n
    return at + 1


def _put_value(out: bytearray, at: int, tag: int, data: bytes, start: int, length: int) -> int:
    """Write a field of type Value that holds ``data[start:start + length]`` as bytes. Returns the offset after it."""
    o = out
    o[at] = tag
    at = _put_varint(o, at + 1, 1 + _varint_size(length) + length)
    o[at] = 0x0A
    at = _put_varint(o, at + 1, length)
    if length <= 256:
        p = data
        for i in range(length):
            o[at + i] = p[start + i]
    elif length <= _SLICED:
        # A slice of the pointer would be a Python object in Cython, so the bytearray itself is sliced.
        out[at : at + length] = data[start : start + length]
    else:
        copy_into(out, at, data, start, start + length)
    return at + length


class Encoder:
    """Encodes batches in order. `take` returns the updates.

    ``expected``: the next sequence number; -1: any. ``updates``: the number of updates since the last `take`.
    ``skipping``: entries are counted and not encoded. ``count``: the number of entries in the last batch's header.
    ``too_large``: the number of updates so far that lack their values. Sequence numbers are below 2^56, sizes below
    2^31.
    """

    def __init__(self, max_update_bytes: int, hash_shards: int = 0, room: int = 1 << 16) -> None:
        if not 0 < max_update_bytes < 1 << 30:
            raise ValueError(f"max_update_bytes is {max_update_bytes}: it has to lie between 1 and 1 GiB")
        self.max_update_bytes = max_update_bytes
        self.hash_shards = hash_shards
        self.expected = -1
        self.too_large = 0
        self.commit_timestamp = b""
        self.families: dict[int, tuple[int, int, int]] = {}
        # The last step.
        self.status = _S_OK
        self.at = 0
        self.need = 0
        self.family = 0
        self.problem = ""
        self.sequence = 0
        self.frame = 0
        self.counted = 0
        self.skipping = False
        # The encoded updates.
        self.updates = 0
        self.transactions = 0
        self._tx_ended = 0
        self.used = 0
        self._room = room
        self._out = bytearray(room)
        self._capacity = 1024
        self._tx_capacity = 1024
        self._columns()
        self._tx_columns()
        # The last entry's column family.
        self._last_family = -1
        self._varint_end = 0
        self.count = 0
        self._schema = 0
        self._timestamp = 0
        self._shard = 0

    def _columns(self) -> None:
        self._ends_array = array("I", bytes(4 * self._capacity))
        self._schema_array = array("I", bytes(4 * self._capacity))
        self._shard_array = array("I", bytes(4 * self._capacity))
        self._ends = self._ends_array
        self._schemas = self._schema_array
        self._shards = self._shard_array

    def _tx_columns(self) -> None:
        self._number_array = array("Q", bytes(8 * self._tx_capacity))
        self._offset_array = array("Q", bytes(8 * self._tx_capacity))
        self._tx_end_array = array("I", bytes(4 * self._tx_capacity))
        self._numbers = self._number_array
        self._offsets = self._offset_array
        self._tx_ends = self._tx_end_array

    def add_family(self, family: int, schema: int, timestamp: int, shard: int) -> None:
        """Register ``family``, a number from ``self.family``: twice the column family, plus one for rows of wide
        columns.

        ``schema``, ``shard``: ordinals for `Piece`; ``shard`` may be `HASHED`. ``timestamp``: bytes of timestamp at the
        end of each key.
        """
        self.families[family] = (schema, timestamp, shard)
        self._last_family = -1

    # --- records --------------------------------------------------------------------------------------------------

    def records(self, data: bytes, frames: Frames, first: int, last: int, base: int, max_bytes: int) -> int:
        """Encode the records of fragments ``first`` to ``last`` (exclusive), up to about ``max_bytes``. ``data`` begins
        at offset ``base`` of the file.

        Returns the next fragment. If it is not ``last``, the limit was reached or ``status`` has the reason. ``frame``
        is the first fragment of the last encoded record.
        """
        i = first
        count = last
        starts, ends, kinds = frames.starts, frames.ends, frames.kinds
        if not 0 <= first <= last <= frames.count:
            raise ValueError(f"fragments {first}:{last} of {frames.count} are out of range")
        self.status = _S_OK
        while i < count and self.used < max_bytes:
            if kinds[i] == _FULL:
                j = i
                status = self.record(data, starts[i], ends[i], base + ends[i])
            else:
                j = i + 1
                while kinds[j] != _LAST:
                    j += 1
                payload = b"".join([data[starts[k] : ends[k]] for k in range(i, j + 1)])
                status = self.record(payload, 0, len(payload), base + ends[j])
            if status != _S_OK:
                break
            self.frame = i
            i = j + 1
        return i

    def record(self, data: bytes, start: int, end: int, next_offset: int) -> int:
        """Encode the batch in ``data[start:end]``. ``next_offset``: the place after it. Returns ``status``."""
        status = self.begin(data, start, end)
        if status != _S_OK:
            return status
        used = self.used
        updates = self.updates
        try:
            status = self.entries(data, start + _HEADER, end, True)
        except DecodeError:
            self.used = used
            self.updates = updates
            raise
        if status == _S_OK and self.counted != self.count:
            status = self._broken(f"it says it has {self.count} entries and has {self.counted}")
        if status != _S_OK:
            self.used = used
            self.updates = updates
            return status
        if self.updates != updates:
            self.end_transaction(next_offset)
        if self.counted:
            self.expected = self.sequence + self.counted
        return status

    def begin(self, data: bytes, start: int, end: int) -> int:
        """Read a batch's header: sets ``sequence`` and clears ``counted``.

        Returns ``status``, which may be `GAP` or `BACK`."""
        if start < 0 or end < start or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"batch {start}:{end} of {len(data)} bytes is out of range")
        p = data
        self.counted = 0
        self.at = start
        self.status = _S_OK
        if end - start < _HEADER:
            return self._broken(f"its header has 12 bytes and {end - start} are there")
        if p[start + 7]:
            return self._broken("its sequence number is above 2^56")
        sequence = 0
        for i in range(6, -1, -1):
            sequence = sequence << 8 | p[start + i]
        count = 0
        for i in range(11, 7, -1):
            count = count << 8 | p[start + i]
        self.sequence = sequence
        self.count = count
        if count and self.expected >= 0 and sequence != self.expected:
            self.status = _S_GAP if sequence > self.expected else _S_BACK
        return self.status

    def end_transaction(self, offset: int) -> int:
        """Note that all updates of the transaction ``sequence`` are encoded. ``offset``: the place after it.

        Returns its ordinal."""
        n = self.transactions
        self.open_transaction(offset)
        self._tx_ends[n] = self.updates
        self._tx_ended = n + 1
        return n

    def open_transaction(self, offset: int) -> int:
        """Note that the transaction ``sequence``, which begins at ``offset``, has more updates after the next `take`.

        Returns its ordinal.
        """
        n = self.transactions
        if n == self._tx_capacity:
            numbers, offsets, ends = self._number_array, self._offset_array, self._tx_end_array
            self._tx_capacity = 2 * n
            self._tx_columns()
            self._number_array[:n] = numbers
            self._offset_array[:n] = offsets
            self._tx_end_array[:n] = ends
        self._numbers[n] = self.sequence
        self._offsets[n] = offset
        self.transactions = n + 1
        return n

    # --- entries --------------------------------------------------------------------------------------------------

    def entries(self, data: bytes, at: int, end: int, final: bool) -> int:
        """Encode the entries in ``data[at:end]`` up to the first that is not plain.

        Returns ``status``. ``at`` is where it stopped: at a marker, an entry of an unknown family, or an incomplete
        entry. ``final``: the batch ends at ``end``, so an incomplete entry is an error. ``counted`` increases with each
        entry.
        """
        if at < 0 or end < at or len(data) < end or len(data) > _LIMIT:
            raise ValueError(f"entries {at}:{end} of {len(data)} bytes are out of range")
        p = data
        operands_of = _OPERANDS
        op_of = _OP
        families_of = _HAS_FAMILY
        rare_of = _RARE
        while at < end:
            entry = at
            kind = p[at]
            at += 1
            operands = operands_of[kind]
            family = 0
            if families_of[kind]:
                if at < end and p[at] < 0x80:
                    family = p[at]
                    at += 1
                else:
                    family = self._varint(data, at, end)
                    if family < 0:
                        return self._cut(family, kind, "column family", entry, 0, final)
                    at = self._varint_end
            if operands > _KEY:
                if operands == _NOOP:
                    continue
                self.at = entry
                if operands == _DATA:
                    length = self._varint(data, at, end)
                    if length < 0:
                        return self._cut(length, kind, "log data", entry, 0, final)
                    if length > end - self._varint_end:
                        return self._cut_data(kind, entry, self._varint_end + length, end, final)
                    at = self._varint_end + length
                    continue
                self.status = _S_MARKER if operands == _MARKER else _S_PER_BATCH
                return self.status
            if operands == 0:
                self.at = entry
                return self._broken(f"entry kind 0x{kind:02x} is not known")
            if at < end and p[at] < 0x80:
                key_size = p[at]
                at += 1
            else:
                key_size = self._varint(data, at, end)
                if key_size < 0:
                    return self._cut(key_size, kind, "key", entry, 0, final)
                at = self._varint_end
            key = at
            if key_size > end - at:
                if key_size > self.max_update_bytes and not final:
                    self.at = entry
                    return self._broken(f"a key of {key_size} bytes is longer than max_update_bytes")
                return self._cut(_TRUNCATED, kind, "key", entry, key - entry + key_size + 5, final)
            at += key_size
            value = 0
            value_size = 0
            if operands == _PAIR:
                if at < end and p[at] < 0x80:
                    value_size = p[at]
                    at += 1
                else:
                    value_size = self._varint(data, at, end)
                    if value_size < 0:
                        return self._cut(value_size, kind, "value", entry, 0, final)
                    at = self._varint_end
                value = at
                if value_size > end - at:
                    if final or (not self.skipping and key_size + value_size <= self.max_update_bytes):
                        return self._cut(_TRUNCATED, kind, "value", entry, value - entry + value_size, final)
                    self.need = value_size - (end - at)
                at += value_size
            if self.skipping:
                self.counted += 1
                if at > end:
                    break
                continue
            family = family << 1 | (kind in {0x16, 0x17})
            if family != self._last_family:
                found = self.families.get(family)
                if found is None:
                    self.at = entry
                    self.family = family
                    self.status = _S_FAMILY
                    return self.status
                self._schema, self._timestamp, self._shard = found
                self._last_family = family
            op = op_of[kind]
            if self.updates == self._capacity:
                self._grow_columns()
            if key_size + value_size > self.max_update_bytes or self._timestamp or rare_of[kind]:
                large = key_size + value_size > self.max_update_bytes
                self._rare(kind, data[key : key + key_size], b"" if large else data[value : value + value_size], large)
            else:
                # The sizes nest: the value, its field, the update, and the update's field in the batch.
                inner = 1 + _varint_size(key_size) + key_size
                body = 3 + _varint_size(inner) + inner
                if operands == _PAIR:
                    inner = 1 + _varint_size(value_size) + value_size
                    body += 1 + _varint_size(inner) + inner
                used = self.used
                if used + body + 6 > self._room:
                    self._grow(body + 6)
                out = self._out
                o = out
                o[used] = 0x0A
                used = _put_varint(o, used + 1, body)
                o[used] = 0x08
                o[used + 1] = op
                used = _put_value(out, used + 2, 0x12, data, key, key_size)
                if operands == _PAIR:
                    used = _put_value(out, used, 0x32 if op == 7 else 0x1A, data, value, value_size)
                self.used = used
            n = self.updates
            self._ends[n] = self.used
            self._schemas[n] = self._schema
            if self._shard == _HASHED:
                self._shards[n] = _ALL_SHARDS if op == 7 else self._hash_shard(data, key, key_size)
            else:
                self._shards[n] = self._shard
            self.updates = n + 1
            self.counted += 1
        if at > end:  # the left-out value continues after the data
            self.at = end
            self.status = _S_SKIP
            return self.status
        self.at = at
        self.status = _S_OK
        return self.status

    def take(self) -> Piece:
        """The updates encoded since the last call."""
        n, t = self.updates, self.transactions
        schema_of, shard_of = self._schema_array[:n], self._shard_array[:n]
        piece = Piece(
            bytes(memoryview(self._out)[: self.used]),
            self._ends_array[:n],
            schema_of[:1] if _uniform(self._schemas, n) else schema_of,
            shard_of[:1] if _uniform(self._shards, n) else shard_of,
            self._number_array[:t],
            self._offset_array[:t],
            self._tx_end_array[: self._tx_ended],
        )
        self.updates = self.transactions = self._tx_ended = self.used = 0
        if self._room > _KEPT_ROOM:
            self._room = _KEPT_ROOM
            self._out = bytearray(_KEPT_ROOM)
        if self._capacity > _KEPT_ROWS:
            self._capacity = _KEPT_ROWS
            self._columns()
        return piece

    def _varint(self, data: bytes, at: int, end: int) -> int:
        """The varint32 at ``at``; negative: the reason why there is none. ``_varint_end``: the index after it."""
        p = data
        n = 0
        shift = 0
        while at < end:
            byte = p[at]
            at += 1
            # The fifth byte has four bits left. More bits overflow in the compiled form and not in the interpreted one.
            if shift == 28 and byte > 0x0F:
                return _MALFORMED
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._varint_end = at
                return n
            shift += 7
        return _TRUNCATED

    def _hash_shard(self, data: bytes, key: int, size: int) -> int:
        raw = data[key : key + size]
        if self._timestamp:
            raw = rare_key(raw, self._timestamp, self.commit_timestamp)
        return crc32(raw) % self.hash_shards

    def _cut(self, why: int, kind: int, field: str, entry: int, need: int, final: bool) -> int:
        """Set the status for an entry that does not end within the data. Returns it."""
        self.at = entry
        if why == _MALFORMED:
            return self._broken(f"the {field} of an entry of kind 0x{kind:02x} has a length of more than 32 bits")
        if final:
            return self._broken(f"the {field} of an entry of kind 0x{kind:02x} runs over the end of the batch")
        self.need = need
        self.status = _S_MORE
        return self.status

    def _cut_data(self, kind: int, entry: int, stop: int, end: int, final: bool) -> int:
        if final:
            return self._cut(_TRUNCATED, kind, "log data", entry, 0, final)
        self.at = end
        self.need = stop - end
        self.status = _S_SKIP
        return self.status

    def _broken(self, problem: str) -> int:
        self.problem = problem
        self.status = _S_BROKEN
        return self.status

    def _rare(self, kind: int, key: bytes, value: bytes, large: bool) -> None:
        message = rare_update(kind, key, value, self._timestamp, self.commit_timestamp, large)
        self.too_large += large
        size = len(message)
        if self.used + size + 6 > self._room:
            self._grow(size + 6)
        out = self._out
        out[self.used] = 0x0A
        at = _put_varint(out, self.used + 1, size)
        out[at : at + size] = message
        self.used = at + size

    def _grow(self, need: int) -> None:
        self._room = grow(self._out, self.used + need)

    def _grow_columns(self) -> None:
        n = self._capacity
        ends, schemas, shards = self._ends_array, self._schema_array, self._shard_array
        self._capacity = 2 * n
        self._columns()
        self._ends_array[:n] = ends
        self._schema_array[:n] = schemas
        self._shard_array[:n] = shards
