"""Reads one WAL file: checked records from any place on, or the reason why a place has no record."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import zstandard
from google_crc32c import extend

from datastores.rocksdb.decode.log_format import (
    BAD_CHECKSUM,
    BAD_LENGTH,
    BAD_ORDER,
    BLOCK,
    FULL,
    KNOWN_KINDS,
    LAST,
    META,
    MORE,
    ROOM,
    STALE,
    UNKNOWN_KIND,
    ZERO,
    Frames,
    frame,
    meta_at,
    valid_at,
)
from wormhole.model.errors import DecodeError, SourceUnavailable, UnsupportedLog

__all__ = ["LARGE", "FillResult", "PayloadReader", "WalFile", "WalRecord"]

LARGE: Final = 4 << 20
"""A larger record, in bytes, is never in memory as a whole: it is checked first, then read again in parts."""

_CHUNK: Final = 256 << 10
_MOST: Final = LARGE + (LARGE >> 10) + BLOCK  # a record and the headers of its fragments
_ZSTD: Final = 7
_HEAD: Final = struct.Struct("<QI")  # sequence number and count, at a batch's beginning
_TIMESTAMP_SIZE: Final = struct.Struct("<IH")
_FAULTS: Final = {
    STALE: "belongs to another log number",
    ZERO: "is zero",
    BAD_CHECKSUM: "has a wrong checksum",
    BAD_LENGTH: "has a length that runs over its block",
    BAD_ORDER: "does not follow on the fragment before it",
}


class FillResult(Enum):
    """The findings of :meth:`WalFile.fill` at a place."""

    RECORDS = 1
    """Whole records, which are now in ``frames``."""
    LARGE = 2
    """The beginning of a record of more than `LARGE` bytes."""
    END = 3
    """No record: the file's end, zeros, or the remains of an older log."""
    TORN = 4
    """Bytes that are no whole record: incomplete, never finished, or damaged. See `WalFile.check`."""


class WalRecord(NamedTuple):
    """A whole record: its place, and its batch's header."""

    begin: int
    end: int
    sequence: int
    entries: int


class WalFile:
    """An open WAL. ``number``: the log's number. ``data``: bytes of the file from offset ``base`` on. ``frames``: the
    records found in ``data``.

    ``zstd``: payloads are compressed. ``timestamps``: sizes of user-defined timestamps by column family, from the log
    up to the furthest place that was read. ``fault``: where `fill` last stopped, and the reason (see `log_format`).
    """

    def __init__(self, path: Path, number: int) -> None:
        """Open the file. Raises :class:`SourceUnavailable` if it does not exist or access is denied."""
        self.number = number
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SourceUnavailable(f"{path.name} cannot be opened: {error.strerror}") from error
        self.frames = Frames()
        self.data = b""
        self.base = 0
        self.zstd = False
        self._zstd = zstandard.ZstdDecompressor()
        self.recycled = False
        self.timestamps: dict[int, int] = {}
        self.fault = (0, MORE)
        self._read_head()

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def changed(self) -> tuple[int, int]:
        """The file's size and time of the last change. If both are unchanged, nothing was written."""
        stat = os.fstat(self._fd)
        return stat.st_size, stat.st_mtime_ns

    def _pread(self, size: int, at: int) -> bytes:
        try:
            return os.pread(self._fd, size, at)
        except OSError as error:
            raise SourceUnavailable(f"{self.path.name} cannot be read at {at}: {error.strerror}") from error

    def _read_head(self) -> None:
        """Read the settings in the file's first records. They apply to the whole file, and a reader may begin in the
        middle.
        """
        data = self._pread(BLOCK, 0)
        at, status = frame(data, 0, 0, self.number, self.frames, False, False)
        while not self.frames.count and status == META:
            self.recycled |= data[at + 6] in {11, 131}
            self._apply(data, 0, at)
            at, status = frame(data, 0, meta_at(data, at).next_at, self.number, self.frames, False, False)
        first = self.frames.heads[0] if self.frames.count else at
        self.recycled |= len(data) > first + 6 and 5 <= data[first + 6] <= 8
        self.frames.count = 0

    def _apply(self, data: bytes, base: int, at: int) -> int:
        """Apply the record of settings at ``at``. Returns the index after it."""
        meta = meta_at(data, at)
        if meta.kind == 9:
            kind = int.from_bytes(meta.payload[:4], "little")
            if kind not in {0, _ZSTD}:
                raise UnsupportedLog(
                    f"{self.path.name} at {base + at}: its records are compressed in a way that is not known ({kind})",
                    hint="set wal_compression to kZSTD or kNoCompression",
                )
            self.zstd = kind == _ZSTD
        elif meta.kind in {10, 11}:
            if len(meta.payload) % _TIMESTAMP_SIZE.size:
                raise self.error("timestamp sizes", base + at, f"have {len(meta.payload)} bytes, no multiple of 6")
            self.timestamps.update(_TIMESTAMP_SIZE.iter_unpack(meta.payload))
        return meta.next_at

    def fill(self, at: int, want: int = _CHUNK) -> FillResult:
        """Read from offset ``at``, where a record begins or ends, and find whole records: at least one, if one
        follows."""
        self.frames.count = 0
        want = max(want, BLOCK)
        while True:
            data = self._pread(want, at)
            stop, status = frame(data, at, 0, self.number, self.frames, False, False)
            self.fault = (at + self.frames.fault_at, status)
            if self.frames.count:
                self.data, self.base = data, at
                return FillResult.RECORDS
            if status == META:
                at += self._apply(data, at, stop)
            elif status == MORE:
                if len(data) < want:
                    # Zeros, or fewer bytes than a header, are a block's trailer or preallocated space.
                    return FillResult.TORN if data[stop:].strip(b"\0") else FillResult.END
                begun = self.frames.record_at
                if begun:
                    at += begun
                elif want >= _MOST:
                    self.data, self.base = b"", at
                    return FillResult.LARGE
                else:
                    want = min(4 * want, _MOST)
            elif status in {ZERO, STALE} and self.frames.record_at == stop:
                return FillResult.END
            else:
                return FillResult.TORN

    def measure(self, at: int) -> tuple[int, int] | None:
        """The offset after the record at ``at``, and its payload's CRC32C. The payload is not kept in memory.

        ``None``: the record is not whole (see ``fault``).
        """
        crc = 0
        for data, start, end, after, kind in self._fragments(at):
            crc = extend(crc, data[start:end])
            if kind in {1, LAST}:
                return after, crc
        return None

    def payload(self, at: int) -> Iterator[bytes]:
        """The stored payload of the record at ``at``, by fragments.

        The caller has checked that the record is whole. Raises :class:`DecodeError` if it no longer is."""
        for data, start, end, _, kind in self._fragments(at):
            yield data[start:end]
            if kind in {1, LAST}:
                return
        raise self.error("record", at, "was whole and is no longer")

    def _fragments(self, at: int) -> Iterator[tuple[bytes, int, int, int, int]]:
        frames = Frames(64)
        inside = False
        while True:
            data = self._pread(_CHUNK, at)
            stop, status = 0, ROOM
            while status == ROOM:  # one read may hold many fragments, because they may be small
                begun = stop
                stop, status = frame(data, at, begun, self.number, frames, inside, True)
                for i in range(frames.count):
                    yield data, frames.starts[i], frames.ends[i], at + frames.ends[i], frames.kinds[i]
                    inside = True
                if stop == begun:
                    break
            if status not in {MORE, ROOM} or not stop:
                self.fault = (at + frames.fault_at, status)
                return
            at += stop

    def payload_crc(self, first: int) -> int:
        """The CRC32C of the payload of the record that begins with fragment ``first`` of ``frames``."""
        frames, data, crc = self.frames, self.data, 0
        while True:
            crc = extend(crc, data[frames.starts[first] : frames.ends[first]])
            if frames.kinds[first] in {1, LAST}:
                return int(crc)
            first += 1

    def open_payload(self, at: int) -> PayloadReader:
        """A reader that returns the batch of the record at ``at`` in parts."""
        return PayloadReader(self.payload(at), self.zstd)

    def batch(self, first: int, after: int) -> bytes | None:
        """The batch of the record in fragments ``first`` to ``after`` (exclusive); ``None``: it exceeds `LARGE` bytes.

        Raises :class:`DecodeError` if it cannot be decompressed.
        """
        frames = self.frames
        stored = b"".join([self.data[frames.starts[i] : frames.ends[i]] for i in range(first, after)])
        if not self.zstd:
            return stored
        try:
            size = zstandard.frame_content_size(stored)
            if 0 <= size <= LARGE:
                return self._zstd.decompress(stored)
        except zstandard.ZstdError as error:
            raise DecodeError(f"record: its payload does not decompress: {error}") from error
        reader = PayloadReader(iter((stored,)), True)
        parts, found = [], 0
        while piece := reader.read(128 << 10):
            parts.append(piece)
            found += len(piece)
            if found > LARGE:
                return None
        return b"".join(parts)

    def first_sequence(self) -> int | None:
        """The sequence number of the file's first record; ``None``: the file has no whole record yet.

        Raises :class:`DecodeError` if the bytes at its beginning can never become a record (see `check`).
        """
        result = self.fill(0)
        if result is FillResult.RECORDS:
            at = self.base + self.frames.heads[0]
        elif result is FillResult.LARGE and self.measure(self.base):
            at = self.base
        else:
            self.check()
            return None
        head = self.open_payload(at).read(12)
        return int.from_bytes(head[:8], "little") if len(head) == 12 else None

    def records(self) -> Iterator[WalRecord]:
        """All whole records of the file. Damaged bytes are skipped."""
        at = 0
        while True:
            result = self.fill(at)
            frames, data, base = self.frames, self.data, self.base
            if result is FillResult.LARGE:
                measured = self.measure(base)
                if measured is not None:
                    at = measured[0]
                    yield self._record(base, at, b"")
                    continue
            elif result is FillResult.RECORDS:
                first = 0
                for i in range(frames.count):
                    if frames.kinds[i] in {FULL, LAST}:
                        head = data[frames.starts[first] : min(frames.starts[first] + _HEAD.size, frames.ends[first])]
                        yield self._record(base + frames.heads[first], base + frames.ends[i], head)
                        first = i + 1
                at = base + frames.ends[frames.count - 1]
                continue
            later = self.later_record(self.fault[0]) if result in {FillResult.LARGE, FillResult.TORN} else None
            if later is None:
                return
            at = later

    def _record(self, begin: int, end: int, head: bytes) -> WalRecord:
        if self.zstd or len(head) < _HEAD.size:
            head = self.open_payload(begin).read(_HEAD.size)
        return WalRecord(begin, end, *_HEAD.unpack(head.ljust(_HEAD.size, b"\0")))

    def read_timestamps(self, before: int) -> None:
        """Read the sizes of timestamps before offset ``before``, for a reader that began after them."""
        with closing(WalFile(self.path, self.number)) as walk:
            for record in walk.records():
                if record.end >= before:
                    break
            self.timestamps.update(walk.timestamps)

    def later_record(self, at: int) -> int | None:
        """The place of the next valid fragment of this log after ``at``; ``None``: no valid fragment follows."""
        rest = self._pread(BLOCK - at % BLOCK, at)
        for i in range(1, len(rest) - 6):
            length = rest[i + 4] | rest[i + 5] << 8
            known = rest[i + 6] in KNOWN_KINDS  # computing checksums at all other bytes would take long
            if known and 0 < length <= len(rest) - i - 7 and valid_at(rest, at, i, self.number):
                return at + i
        base = at - at % BLOCK + BLOCK
        size = os.fstat(self._fd).st_size
        while base < size:
            head = self._pread(11, base)
            if len(head) == 11 and head[6]:
                block = self._pread(BLOCK, base)
                if int.from_bytes(head[4:6], "little") and valid_at(block, base, 0, self.number):
                    return base
            base += BLOCK
        return None

    def error(self, kind: str, at: int, what: str) -> DecodeError:
        """The common form of errors about this file's bytes."""
        return DecodeError(
            f"{self.path.name}, offset {at}: {kind} {what}",
            hint="the log is damaged: restore the file, or start the application anew from a place behind the damage",
        )

    def check(self) -> None:
        """Raise :class:`DecodeError` if `fill` or `measure` stopped at a whole fragment that is part of no known
        record. Such a fragment is not the live end, because no later write can complete it."""
        at, status = self.fault
        if status == BAD_ORDER:
            raise self.error("fragment header", at, _FAULTS[status])
        if status == UNKNOWN_KIND:
            kind = self._pread(7, at)[6]
            raise DecodeError(
                f"{self.path.name}, offset {at}: the record's kind {kind} is not known, and it may hold changes",
                hint="it is of a newer RocksDB than this release reads: install a release of Wormhole that knows it",
                code="release-too-old",
            )

    def is_foreign(self) -> bool:
        """Whether `fill` stopped at a full block at the file's beginning that holds no record. The file may be
        encrypted."""
        if self.recycled or self.fault not in {(0, BAD_CHECKSUM), (0, BAD_LENGTH)}:
            return False
        return bool(self._pread(7, BLOCK).strip(b"\0"))

    def damage(self, later: int | None) -> DecodeError:
        """The error for ``fault``. ``later``: the place of a record, which proves that ``fault`` is not the live end;
        ``None``: the file is foreign (see `is_foreign`)."""
        at, status = self.fault
        if later is None:
            return DecodeError(
                f"{self.path.name}, offset {at}: this is no log of RocksDB's, and no record follows in the whole file",
                hint="if the database is opened with an encrypting Env, open it with a plain one on an encrypted disk",
            )
        what = _FAULTS.get(status, "is incomplete")
        return self.error("fragment header", at, f"{what}, and valid log follows at {later}")


class PayloadReader:
    """Reads a record's batch in parts, and decompresses it if needed.

    It holds at most the requested bytes and one fragment in memory."""

    def __init__(self, fragments: Iterator[bytes], zstd: bool) -> None:
        self._fragments = fragments
        self._rest = b""
        self._stream = zstandard.ZstdDecompressor().stream_reader(_File(self)) if zstd else None  # type: ignore[arg-type]

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the record's end. Raises :class:`DecodeError`."""
        if self._stream is None:
            return self.read_stored(size)
        try:
            return self._stream.read(size)
        except zstandard.ZstdError as error:
            raise DecodeError(f"record: its payload does not decompress: {error}") from error

    def read_stored(self, size: int) -> bytes:
        """Up to ``size`` bytes in their stored form."""
        while not self._rest:
            fragment = next(self._fragments, None)
            if fragment is None:
                return b""
            self._rest = fragment
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


class _File:
    """A file object from which zstandard reads."""

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader

    def read(self, size: int) -> bytes:
        return self._reader.read_stored(size)
