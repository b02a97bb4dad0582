"""Finds places in the log, and checks that a stored datamarker belongs to the log."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Final

from datastores.common.next_steps import REPAIR
from datastores.rocksdb.log.port import WalFiles
from datastores.rocksdb.log.scan import read_record
from datastores.rocksdb.log.wal_file import WalFile
from wormhole.model.errors import Diverged, PositionError, PositionPurged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition

__all__ = [
    "check_anchor",
    "check_reach",
    "diverged",
    "first_sequence",
    "open_wal",
    "record_after",
    "sequence_after",
    "sequence_of",
]

_NUMBER: Final = re.compile(r"[0-9]{1,20}")


def open_wal(files: WalFiles, number: int) -> WalFile | None:
    """Open a WAL file; ``None``: it is gone."""
    path = files.path(number)
    if path is None:
        return None
    try:
        return WalFile(path, number)
    except SourceUnavailable:
        if files.path(number) != path:
            return None  # deleted meanwhile
        raise


def first_sequence(files: WalFiles, number: int | None) -> int | None:
    """The sequence number of the first record in file ``number`` or a newer one; ``None``: there is no record."""
    while number is not None:
        wal = open_wal(files, number)
        if wal is not None:
            with closing(wal):
                sequence = wal.first_sequence()
            if sequence is not None:
                return sequence
        number = files.newer(number)
    return None


def sequence_after(files: WalFiles, place: LogPosition) -> int | None:
    """The sequence number of the first record that ends after ``place``; ``None``: there is none."""
    found = record_after(files, place)
    return None if found is None else found[1]


def record_after(files: WalFiles, place: LogPosition) -> tuple[LogPosition, int] | None:
    """The beginning and sequence number of the first record that ends after ``place``. Damage before it is skipped."""
    wal = open_wal(files, place.file)
    if wal is not None:
        with closing(wal):
            for record in wal.records():
                if record.end > place.offset:
                    return LogPosition(place.incarnation, place.file, record.begin), record.sequence
    number = files.newer(place.file)
    sequence_then = first_sequence(files, number)
    if number is None or sequence_then is None:
        return None
    return LogPosition(place.incarnation, number, 0), sequence_then


def check_anchor(files: WalFiles, marker: Datamarker) -> None:
    """Read the transaction before ``marker`` again. Raises :class:`Diverged` if the log has another one there."""
    anchor = marker.anchor
    if anchor is None:
        wal = open_wal(files, marker.order.file)
        if wal is not None:
            with closing(wal):
                size, _ = wal.changed()
            if marker.order.offset > size:
                raise diverged(marker, f"WAL {marker.order.file} ends at {size}")
        _check_sequence(files, marker)
        return
    if files.path(anchor.begin.file) is None:
        _check_sequence(files, marker)  # the anchor's file was released, so its transaction cannot be compared
        return
    found = read_record(files, anchor.begin)
    if found is None:
        raise diverged(marker, f"there is no transaction at {anchor.begin}, where {anchor.id} was")
    there = f"{anchor.id.rpartition(':')[0]}:{found.sequence}"
    # The place is the transaction's end, or lies in a later file.
    moved = anchor.begin.file == marker.order.file and found.end != marker.order
    if there != anchor.id or found.checksum != anchor.checksum or moved:
        raise diverged(
            marker,
            f"the transaction at {anchor.begin} is {there} with checksum {found.checksum:08x} and ends at {found.end}, "
            f"it was {anchor.id} with {anchor.checksum:08x} and ended at {marker.order}",
        )


def sequence_of(marker: Datamarker) -> int:
    """The sequence number in the marker, which a subscriber may have sent. Raises :class:`PositionError`."""
    if not _NUMBER.fullmatch(marker.delivered):
        raise PositionError(f"{marker.delivered[:80]!r} is no sequence number of RocksDB")
    return int(marker.delivered)


def _check_sequence(files: WalFiles, marker: Datamarker) -> None:
    """Raise :class:`Diverged` if the record after ``marker`` does not have a greater sequence number."""
    if marker.delivered and marker.read_from == marker.order:
        following = sequence_after(files, marker.order)
        if following is not None and following <= sequence_of(marker):
            raise diverged(marker, f"sequence number {following} follows it")


def check_reach(files: WalFiles, marker: Datamarker, last_sequence: int) -> None:
    """Check that the log still holds everything after ``marker``, whose own file is gone.

    ``last_sequence``: the last sequence number in the database's tables, from its MANIFEST. Raises
    :class:`PositionPurged` with the missing range, and :class:`Diverged` if the database has not reached the marker.
    """
    following = files.newer(marker.order.file)
    sequence = first_sequence(files, following)
    reached = sequence - 1 if sequence is not None else last_sequence
    if marker.delivered and reached < sequence_of(marker):
        # In one history sequence numbers rise, and the tables hold all changes of deleted files.
        what = (
            f"the log goes on at sequence number {sequence}" if sequence is not None else f"its tables end at {reached}"
        )
        raise diverged(marker, f"WAL {marker.order.file} is gone, and {what}")
    if marker.delivered and reached == sequence_of(marker):
        return  # the marker's file held nothing after it
    first = str(sequence_of(marker) + 1) if marker.delivered else ""
    raise PositionPurged(
        f"WAL {marker.order.file} is gone: sequence numbers {first or '?'} to {reached} are no longer in the log",
        first_missing=first,
        last_missing=str(reached),
        position=str(marker.order),
        hint="replay the range from an archive, or go on from earliest and accept the loss",
    )


def diverged(marker: Datamarker, found: str, ended: str = "") -> Diverged:
    """The error for a marker that is not of this log.

    ``ended``: the last known sequence number of the marker's own history."""
    first = last = ""
    if ended.isdecimal() and marker.delivered.isdecimal() and int(ended) > sequence_of(marker):
        first, last = str(sequence_of(marker) + 1), ended
        found += f"; sequence numbers {first} to {last} of the marker's history were not delivered"
    return Diverged(
        f"the log is not the one that the datamarker {marker} came from: {found}",
        first_missing=first,
        last_missing=last,
        position=str(marker.order),
        hint=f"find out whether the database was restored or replaced. If it was: {REPAIR}",
    )
