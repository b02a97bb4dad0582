"""Finds checked fragments of records in the bytes of a WAL file. Hot: compiled where possible.

The format, from RocksDB's documentation ("Write Ahead Log File Format")::

    file     := block*                    each block 32 KiB; the last one may be shorter
    block    := fragment* trailer         trailer: zeros, in a space too small for a header
    fragment := crc (4) length (2) kind (1) [log number (4)] payload
    record   := FULL | FIRST MIDDLE* LAST

The checksum is CRC32C, masked, over everything after the length. Kinds 5 to 8, 11 and 131 carry the low half of the log
number, because the file may be recycled. A fragment with another number is a remainder of the file's former log.

Integers are little endian. These kinds of records hold no data: compression (9), sizes of user-defined timestamps (10,
11), predecessor (130, 131), and every other kind with the highest bit set, which a reader may ignore (`IGNORABLE`).
From 10 on, an odd kind is the previous kind with the log number in its header, for recycled files.

A record without data is never divided. If it does not fit into its block, zeros fill the block.
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
    "IGNORABLE",
    "KNOWN_KINDS",
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
IGNORABLE: Final = 0x80
"""The bit of kinds that a reader may ignore if it does not know them."""

# Why `frame` stopped. The results up to ROOM are no faults.
MORE: Final = 0
"""The data ends before the next record's end."""
META: Final = 1
"""A record without data, or one that may be ignored, is next: read it with `meta_at`."""
ROOM: Final = 2
"""The frames are full."""
STALE: Final = 3
"""A fragment of another log number: a remainder in a recycled file."""
ZERO: Final = 4
"""Zeros: space that is not yet written, or a hole."""
BAD_CHECKSUM: Final = 5
BAD_LENGTH: Final = 6
"""The length exceeds the block."""
BAD_ORDER: Final = 7
"""A fragment that does not continue the one before it."""
UNKNOWN_KIND: Final = 8
"""A whole fragment of an unknown kind that may hold changes."""


# Private copies of the constants, because the .pxd makes C integers of them that no other module can import.
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


KNOWN_KINDS: Final = frozenset({*range(1, 12), 130, 131})
_LONG_KINDS: Final = frozenset({5, 6, 7, 8, 11, 131})


class Frames:
    """Fragments found in a buffer: for each the place of its payload and its kind (FULL to LAST).

    The first ``count`` entries of the arrays are in use. ``heads``: the places of the headers. ``record_at``: where
    `frame` stopped, or the beginning of the record within which it stopped. ``fault_at``: where no whole fragment was
    found.
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
    """A record without data. ``next_at``: where the next record begins in the data."""

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
    """Find the records in ``data`` from index ``at`` on. ``data`` begins at offset ``base`` of the file.

    ``log_number``: the file's number. Fills ``frames``. Returns the index at which it stopped, and the reason. By
    default only whole records are returned, and the index is the beginning of the first incomplete one. ``partial``:
    fragments of an incomplete record are returned too, and the search stops after the end of the first record (with
    `ROOM`). ``inside``: ``at`` continues a record after its FIRST or MIDDLE fragment.
    """
    # Bounds for every caller. Within them no integer below overflows in the compiled form.
    if not (0 <= base < 1 << 56 and 0 <= at <= len(data) < 1 << 31 and 0 <= log_number < 1 << 64):
        raise ValueError(f"frame: base {base}, at {at}, size {len(data)} or log number {log_number} is out of range")
    p = data
    size = len(data)
    number = log_number & 0xFFFFFFFF
    room = frames.capacity
    count = 0
    record_at = at  # where the present record begins, and the number of fragments before it
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
            if (
                not open_record
                and at + left <= size
                and not any(data[at : at + left])
                and (left < _LONG_HEADER or _moved(data, at + left, left))
            ):
                at += left
                continue
            status = _ZERO
            break
        header = _HEADER
        if 5 <= kind <= 8 or kind == 11 or kind == 131:
            header = _LONG_HEADER
        if header + length > left:
            status = _BAD_LENGTH
            break
        end = at + header + length
        if end > size:
            break
        stored = p[at] | p[at + 1] << 8 | p[at + 2] << 16 | p[at + 3] << 24
        if _checksum(data, at + 6, end) != stored & 0xFFFFFFFF:
            header = _header(data, at, left)
            if not header:
                status = _BAD_CHECKSUM
                # A long header of an unknown kind may end after the data's end.
                if end + _LONG_HEADER - _HEADER > size and kind & 1 and kind not in KNOWN_KINDS:
                    status = _MORE
                break
            end = at + header + length
        if header == _LONG_HEADER:
            found = p[at + 7] | p[at + 8] << 8 | p[at + 9] << 16 | p[at + 10] << 24
            if found & 0xFFFFFFFF != number:
                status = _STALE
                break
            if kind <= 8:
                kind -= 4
        if kind > _LAST or kind == 0:
            status = _META if 9 <= kind <= 11 or kind & 0x80 else _UNKNOWN_KIND
            if open_record:
                status = _BAD_ORDER
            break
        if kind <= _FIRST:
            if open_record:
                # Old writers could leave an empty FIRST at a block's end and write the record in the next block.
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
        # A fault within a record is reported at the fault, and the record is not returned.
        count = record_count
        if status != _META and status <= _ROOM:
            at = record_at
    frames.count = count
    frames.record_at = record_at
    return at, status


def _header(data: bytes, at: int, room: int) -> int:
    """The size of the header of the fragment at index ``at``, within ``room`` bytes; 0: no whole fragment with a valid
    checksum.

    An unknown kind has either the short header, as RocksDB's reader expects, or the long header that its number
    suggests.
    """
    room = min(room, len(data) - at)
    if room < HEADER:
        return 0
    kind = data[at + 6]
    length = data[at + 4] | data[at + 5] << 8
    stored = int.from_bytes(data[at : at + 4], "little")
    sizes: tuple[int, ...] = (LONG_HEADER,) if kind in _LONG_KINDS else (HEADER,)
    if kind & 1 and kind not in KNOWN_KINDS:
        sizes = (HEADER, LONG_HEADER)
    for header in sizes:
        if header + length <= room and _checksum(data, at + 6, at + header + length) == stored:
            return header
    return 0


def _moved(data: bytes, at: int, left: int) -> bool:
    """Whether the block at index ``at`` begins with a record without data that did not fit into the ``left`` bytes
    before it."""
    header = _header(data, at, BLOCK)
    length = int.from_bytes(data[at + 4 : at + 6], "little")
    return bool(header) and data[at + 6] > 8 and header + length > left


def valid_at(data: bytes, base: int, at: int, log_number: int) -> bool:
    """Whether a whole fragment of this log, with the right checksum, begins at index ``at``."""
    if at + HEADER > len(data) or (data[at + 6] == 0 and data[at + 4] == data[at + 5] == 0):
        return False
    header = _header(data, at, BLOCK - (base + at) % BLOCK)
    if header == LONG_HEADER:
        return int.from_bytes(data[at + 7 : at + 11], "little") == log_number & 0xFFFFFFFF
    return bool(header)


def meta_at(data: bytes, at: int) -> Meta:
    """The record without data at ``at``, where `frame` stopped with `META` or `UNKNOWN_KIND`."""
    header = _header(data, at, BLOCK)
    end = at + header + int.from_bytes(data[at + 4 : at + 6], "little")
    return Meta(data[at + 6], data[at + header : end], end)
