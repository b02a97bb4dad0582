"""Finds places in the WAL: the log's end, the place of a sequence number, and the anchor at a place.

Only the framing of records and the counts of their entries are decoded.

Each function reads the files from the oldest one (or from ``after``) at the speed of checksums, about 1 GB/s compiled.
Two-phase commit requires this: the number of a commit's sequence numbers is stored in its prepare, which may be in any
older file.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from datastores.rocksdb.decode.write_batch import Encoder
from datastores.rocksdb.log.cursor import CursorStep, WalCursor
from datastores.rocksdb.log.port import WalFiles
from datastores.rocksdb.log.wal_file import FillResult, WalFile
from wormhole.model.errors import DecodeError, PositionError, PositionPurged, WormholeError
from wormhole.model.position import Datamarker, LogPosition

__all__ = [
    "FoundRecord",
    "end_of",
    "find_sequence",
    "first_of",
    "last_of",
    "logged_up_to",
    "read_record",
    "read_through",
    "scan_end",
]

_CHUNK = 1 << 20


@dataclass(slots=True, frozen=True)
class FoundRecord:
    """A record: its first sequence number, its payload's CRC32C as in an anchor, and the place after it."""

    sequence: int
    checksum: int
    end: LogPosition


def _skipping() -> Encoder:
    encoder = Encoder(1 << 20)
    encoder.skipping = True
    return encoder


def _cursor(files: WalFiles, after: Datamarker | None, *, one_by_one: bool = False) -> tuple[WalCursor, Encoder]:
    encoder = _skipping()
    if after is None:
        file = files.newer(-1)
        return WalCursor(files, encoder, _never, file=file or 0, at=0, one_by_one=one_by_one), encoder
    encoder.expected = int(after.delivered) + 1 if after.delivered else -1
    start = min(after.order, after.read_from)
    until = None if start == after.order else (after.order.file, after.order.offset)
    return WalCursor(
        files, encoder, _never, file=start.file, at=start.offset, silent_until=until, one_by_one=one_by_one
    ), encoder


def _never(family: int, wal: WalFile) -> None:
    raise AssertionError(f"{wal.path.name}: a walk that encodes nothing asked for column family {family}")


def scan_end(files: WalFiles, *, source_id: str, incarnation: int, after: Datamarker | None = None) -> Datamarker:
    """The datamarker after the last complete transaction.

    ``after``: a known datamarker from which to read; by default everything is read. Its anchor is kept if nothing
    follows. If the log has no record, the result is the beginning of the oldest file. ``committed_at_us`` is that of
    ``after``, or 0.

    The search passes damage, which stops only the flows that reach it. Raises
    :class:`~wormhole.model.errors.SourceUnavailable`. Raises :class:`~wormhole.model.errors.DecodeError` for a whole
    record that cannot be decoded if no newer file follows.
    whole record that cannot be decoded and that no newer file follows.
    """
    cursor, encoder = _cursor(files, after)
    anchor, time_us = (after.anchor, after.committed_at_us) if after is not None else (None, 0)
    end: Datamarker | None = None
    while True:
        try:
            while cursor.step(_CHUNK) != CursorStep.END:
                cursor.gap = None
                encoder.take()
        except DecodeError:
            behind = _behind_damage(files, cursor.file, cursor.at)
            if behind is None:
                raise
        else:
            behind = None
        finally:
            cursor.close()
        if cursor.begin is not None or end is None:
            end = cursor.marker(incarnation, source_id, anchor, time_us)
            anchor = end.anchor
        if behind is None:
            return end
        encoder = _skipping()
        prepared = cursor.prepared
        cursor = WalCursor(files, encoder, _never, file=behind[0], at=behind[1])
        cursor.prepared = prepared


class _SomeFiles:
    """WAL files by number as a :class:`~datastores.rocksdb.log.port.WalFiles`."""

    reached = (-1, 0)

    def __init__(self, paths: Mapping[int, Path]) -> None:
        self._paths = paths

    def path(self, number: int) -> Path | None:
        path = self._paths.get(number)
        return path if path is not None and path.exists() else None

    def newer(self, number: int) -> int | None:
        return min((n for n in self._paths if n > number), default=None)

    def wait(self, seconds: float) -> None:
        pass


def read_through(files: Mapping[int, Path]) -> int:
    """Read all records of these WAL files. Returns their last sequence number; 0: there is no record.

    Raises :class:`WormholeError` for the first fault at which a reader would halt.
    """
    cursor, encoder = _cursor(_SomeFiles(files), None)
    try:
        while cursor.step(_CHUNK) != CursorStep.END:
            cursor.gap = None
            encoder.take()
    finally:
        cursor.close()
    return max(0, int(encoder.expected) - 1)


def last_of(path: Path, number: int) -> int:
    """The last sequence number of WAL ``number`` before its end or first damage; 0: none."""
    cursor, encoder = _cursor(_SomeFiles({number: path}), None)
    try:
        while cursor.step(_CHUNK) != CursorStep.END:
            cursor.gap = None
            encoder.take()
    except WormholeError:
        pass  # damaged or gone; the records before are enough
    finally:
        cursor.close()
    return max(0, int(encoder.expected) - 1)


def logged_up_to(files: WalFiles, sequence: int, file: int, at: int) -> tuple[int, int, int]:
    """The last sequence number, at most ``sequence``, of the records after offset ``at`` of WAL ``file``.

    Returns it with the place after its record; 0 and the given place if there is no such record. ``at`` must be a
    transaction's end.
    """
    last = 0
    for one_by_one in (False, True):
        encoder = _skipping()
        cursor = WalCursor(files, encoder, _never, file=file, at=at, one_by_one=one_by_one)
        try:
            while (step := cursor.step(_CHUNK)) != CursorStep.END and encoder.expected - 1 <= sequence:
                cursor.gap = None
                encoder.take()
                if step == CursorStep.PROGRESS:
                    last, file, at = max(last, encoder.expected - 1), cursor.file, cursor.at
        finally:
            cursor.close()
        if step == CursorStep.END:
            break
    return last, file, at


def end_of(files: Mapping[int, Path]) -> int:
    """The result of `last_of` for the newest of these WAL files that has a record; 0: no file has one."""
    return next((last for number in sorted(files, reverse=True) if (last := last_of(files[number], number))), 0)


def first_of(path: Path, number: int) -> int | None:
    """The sequence number of the first record of WAL ``number``; ``None``: no whole record yet, or the file is gone."""
    try:
        with closing(WalFile(path, number)) as wal:
            return wal.first_sequence()
    except WormholeError:
        return None


def _behind_damage(files: WalFiles, number: int, at: int) -> tuple[int, int] | None:
    """The file and the offset at which valid log may continue after the damage at ``at``."""
    path = files.path(number)
    if path is not None:
        with closing(WalFile(path, number)) as wal:
            result = wal.fill(at)
            torn = result is FillResult.TORN or (result is FillResult.LARGE and wal.measure(wal.base) is None)
            later = wal.later_record(wal.fault[0]) if torn else None
        if later is not None:
            return number, later
    newer = files.newer(number)
    return None if newer is None else (newer, 0)


def find_sequence(files: WalFiles, sequence: int, *, source_id: str, incarnation: int) -> Datamarker:
    """The last transaction's end before which no sequence number above ``sequence`` occurs.

    A reader opened there begins with the transaction that holds ``sequence + 1``, from its first update on. Raises
    :class:`PositionPurged` if the log begins later, and :class:`PositionError` if it does not reach the number yet.
    """
    cursor, encoder = _cursor(files, None)
    known = cursor.marker(incarnation, source_id, None, 0)
    known.delivered = str(sequence)
    found = False
    try:
        while True:
            step = cursor.step(_CHUNK)
            cursor.gap = None
            encoder.take()
            if step == CursorStep.END:
                last = encoder.expected - 1
                if last == sequence:
                    return cursor.marker(incarnation, source_id, known.anchor, 0)
                raise PositionError(
                    f"sequence number {sequence} is not in the log yet: its last is {max(last, 0)}",
                    hint="give a lower number, or latest",
                )
            if encoder.expected - 1 > sequence:
                break
            if encoder.expected > 0:
                found = True
                known = cursor.marker(incarnation, source_id, known.anchor, 0)
    finally:
        cursor.close()
    return _narrow(files, sequence, known, found, source_id, incarnation)


def _narrow(
    files: WalFiles, sequence: int, known: Datamarker, found: bool, source_id: str, incarnation: int
) -> Datamarker:
    """`find_sequence` record by record, from the last place known to precede the result."""
    cursor, encoder = _cursor(files, known if found else None, one_by_one=True)
    try:
        while True:
            step = cursor.step(_CHUNK)
            cursor.gap = None
            encoder.take()
            if not found and cursor.begin is not None:
                if cursor.sequence > sequence + 1:
                    raise PositionPurged(
                        f"the log begins at sequence number {cursor.sequence}, after {sequence + 1}",
                        first_missing=str(sequence + 1),
                        last_missing=str(cursor.sequence - 1),
                        hint="start at earliest, or replay what is missing",
                    )
                found = True
            if step == CursorStep.END or encoder.expected - 1 > sequence:
                return known
            if encoder.expected > 0:
                known = cursor.marker(incarnation, source_id, known.anchor, 0)
    finally:
        cursor.close()


def read_record(files: WalFiles, begin: LogPosition) -> FoundRecord | None:
    """The record that begins at ``begin``, for comparison with an anchor; ``None``: the file is gone, or no whole
    record begins there."""
    path = files.path(begin.file)
    if path is None:
        return None
    wal = WalFile(path, begin.file)
    try:
        if wal.fill(begin.offset) not in {FillResult.RECORDS, FillResult.LARGE}:
            return None
        at = wal.base if not wal.frames.count else wal.base + wal.frames.heads[0]
        measured = wal.measure(at)
        if at != begin.offset or measured is None:
            return None
        end, checksum = measured
        head = wal.open_payload(at).read(8)
        return FoundRecord(int.from_bytes(head, "little"), checksum, LogPosition(begin.incarnation, begin.file, end))
    finally:
        wal.close()
