"""RocksDB's log format: from the bytes of a WAL file to checked fragments of records. Hot: compiled where possible.

The format, as RocksDB's documentation has it ("Write Ahead Log File Format")::

    file     := block*                    each block 32 KiB, the last one as far as it was written
    block    := fragment* trailer         trailer: zeros, where no header fits any more
    fragment := crc (4) length (2) kind (1) [log number (4)] payload
    record   := FULL | FIRST MIDDLE* LAST

The checksum is CRC32C, masked, over everything after the length. Kinds 5 to 8 and 11 carry the low half of the file's
number, because the file's space was used by an older log before: a fragment of another number is what that log left.
Integers are little endian. Kinds of records that hold no data: compression (9), sizes of user-defined timestamps (10,
11), predecessor (33, 34), and any other with bit 5 set, which a reader may pass over.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from google_crc32c import value as crc32c

__all__ = [
    "BAD_CHECKSUM",
    "BAD_LENGTH",
    "BAD_ORDER",
    "BLOCK",
    "FIRST",
    "FULL",
    "LAST",
    "META",
    "MIDDLE",
    "MORE",
    "ROOM",
    "STALE",
    "UNKNOWN_KIND",
    "ZERO",
    "Frames",
    "Meta",
    "frame",
    "meta_at",
    "valid_at",
]

BLOCK: Final = 32768
HEADER: Final = 7
LONG_HEADER: Final = 11

FULL: Final = 1
FIRST: Final = 2
MIDDLE: Final = 3
LAST: Final = 4

# Why `frame` stopped. Up to ROOM nothing is wrong.
MORE: Final = 0
"""The data ends before the next record does."""
META: Final = 1
"""There is a record without data: read it with `meta_at`."""
ROOM: Final = 2
"""The frames are full."""
STALE: Final = 3
"""A fragment of another log number: what an older log left in a recycled file."""
ZERO: Final = 4
"""Zeros: space that was not written yet, or a hole."""
BAD_CHECKSUM: Final = 5
BAD_LENGTH: Final = 6
"""The length runs over the end of the block."""
BAD_ORDER: Final = 7
"""A fragment that does not follow on the one before."""
UNKNOWN_KIND: Final = 8


# The constants again, private: the .pxd makes C integers of these, which nobody else could import.
_BLOCK: Final = BLOCK
_HEADER: Final = HEADER
_LONG_HEADER: Final = LONG_HEADER
_FULL: Final = FULL
_FIRST: Final = FIRST
_MIDDLE: Final = MIDDLE
_LAST: Final = LAST
_MORE: Final = MORE
_META: Final = META
_ROOM: Final = ROOM
_STALE: Final = STALE
_ZERO: Final = ZERO
_BAD_CHECKSUM: Final = BAD_CHECKSUM
_BAD_LENGTH: Final = BAD_LENGTH
_BAD_ORDER: Final = BAD_ORDER
_UNKNOWN_KIND: Final = UNKNOWN_KIND


class Frames:
    """Fragments found in a piece of file: the place of each payload in the data, and its kind (FULL to LAST).

    ``count`` of the arrays' entries are in use; ``heads`` are the places of the headers. ``record_at``: where the
    record begins in whose middle `frame` stopped, else where it stopped. ``fault_at``: where there was no whole
    fragment.
    """

    __slots__ = (
        "_ends",
        "_heads",
        "_kinds",
        "_starts",
        "capacity",
        "count",
        "ends",
        "fault_at",
        "heads",
        "kinds",
        "record_at",
        "starts",
    )

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.count = 0
        self.record_at = 0
        self.fault_at = 0
        self.starts = array("I", bytes(4 * capacity))
        self.ends = array("I", bytes(4 * capacity))
        self.heads = array("I", bytes(4 * capacity))
        self.kinds = array("B", bytes(capacity))
        self._starts = self.starts
        self._ends = self.ends
        self._heads = self.heads
        self._kinds = self.kinds


@dataclass(slots=True)
class Meta:
    """A record without data: ``kind``, ``payload``, and where the next one begins in the data."""

    kind: int
    payload: bytes
    next_at: int


def _checksum(data: bytes, start: int, end: int) -> int:
    """The masked CRC32C of ``data[start:end]``."""
    crc: int = crc32c(data[start:end])
    return (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(
    data: bytes, base: int, at: int, log_number: int, frames: Frames, inside: bool, partial: bool
) -> tuple[int, int]:
    """Find the records in ``data``, which begins at offset ``base`` of the file, from index ``at`` on.

    ``log_number`` is the file's number. Fills ``frames`` and returns where it stopped, and why. Only whole records
    are handed out, and ``at`` is then the beginning of the first that is not there; with ``partial``, fragments are
    handed out as they come and it stops after the first record's end (with `ROOM`). ``inside``: ``at`` follows on a
    FIRST or MIDDLE fragment.
    """
    # Bounds that hold for every caller; with them no integer below can wrap in the compiled form.
    if not (0 <= base < 1 << 56 and 0 <= at <= len(data) < 1 << 31 and 0 <= log_number < 1 << 64):
        raise ValueError(f"frame: base {base}, at {at}, size {len(data)} or log number {log_number} is out of range")
    p = data
    size = len(data)
    number = log_number & 0xFFFFFFFF
    room = frames.capacity
    count = 0
    record_at = at  # where the record that is being read begins, and how many fragments there were before it
    record_count = 0
    open_record = inside
    status = _MORE
    while True:
        if count == room:
            status = _ROOM
            break
        left = _BLOCK - ((base + at) & (_BLOCK - 1))  # a block is a power of two
        if left < _HEADER:
            if at + left > size:
                break
            at += left
            continue
        if at + _HEADER > size:
            break
        kind = p[at + 6]
        length = p[at + 4] | p[at + 5] << 8
        if kind == 0 and length == 0:
            # A writer with long headers leaves up to ten bytes at the end of a block.
            if left < _LONG_HEADER and not open_record and at + left <= size and not any(data[at : at + left]):
                at += left
                continue
            status = _ZERO
            break
        header = _HEADER
        if 5 <= kind <= 8 or kind == 11 or kind == 34:
            header = _LONG_HEADER
        if header + length > left:
            status = _BAD_LENGTH
            break
        end = at + header + length
        if end > size:
            break
        stored = p[at] | p[at + 1] << 8 | p[at + 2] << 16 | p[at + 3] << 24
        if _checksum(data, at + 6, end) != stored & 0xFFFFFFFF:
            status = _BAD_CHECKSUM
            break
        if header == _LONG_HEADER:
            found = p[at + 7] | p[at + 8] << 8 | p[at + 9] << 16 | p[at + 10] << 24
            if found & 0xFFFFFFFF != number:
                status = _STALE
                break
            if kind <= 8:
                kind -= 4
        if kind > _LAST:
            status = _META if 9 <= kind <= 11 or kind & 32 else _UNKNOWN_KIND
            if open_record:
                status = _BAD_ORDER
            break
        if kind <= _FIRST:
            if open_record:
                # Old writers could leave an empty FIRST at the end of a block and begin again in the next one.
                if (
                    count == 0
                    or frames._starts[count - 1] != frames._ends[count - 1]
                    or frames._kinds[count - 1] != _FIRST
                ):
                    status = _BAD_ORDER
                    break
                count -= 1
            record_at = at
            record_count = count
        elif not open_record:
            status = _BAD_ORDER
            break
        frames._starts[count] = at + header
        frames._ends[count] = end
        frames._heads[count] = at
        frames._kinds[count] = kind
        count += 1
        at = end
        open_record = _FIRST <= kind <= _MIDDLE
        if not open_record:
            record_at = at
            record_count = count
            if partial:
                status = _ROOM
                break
    frames.fault_at = at
    if open_record and not partial:
        # A fault behind the beginning of a record is reported at the fault; the record itself was not handed out.
        count = record_count
        if status != _META and status <= _ROOM:
            at = record_at
    frames.count = count
    frames.record_at = record_at
    return at, status


def valid_at(data: bytes, base: int, at: int, log_number: int) -> bool:
    """Whether a whole fragment of this log, with the right checksum, begins at index ``at``."""
    size = len(data)
    left = BLOCK - (base + at) % BLOCK
    if at + HEADER > size or left < HEADER:
        return False
    kind = data[at + 6]
    length = data[at + 4] | data[at + 5] << 8
    header = LONG_HEADER if kind in {5, 6, 7, 8, 11, 34} else HEADER
    if kind == 0 or header + length > min(left, size - at):
        return False
    if header == LONG_HEADER and int.from_bytes(data[at + 7 : at + 11], "little") != log_number & 0xFFFFFFFF:
        return False
    return _checksum(data, at + 6, at + header + length) == int.from_bytes(data[at : at + 4], "little")


def meta_at(data: bytes, at: int) -> Meta:
    """The record without data at ``at``, where `frame` stopped with `META`."""
    kind = data[at + 6]
    header = LONG_HEADER if kind in {11, 34} else HEADER
    end = at + header + int.from_bytes(data[at + 4 : at + 6], "little")
    return Meta(kind, data[at + header : end], end)
