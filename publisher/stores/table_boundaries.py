"""Stores the boundaries of a table's chunks in files: one file per table, and one file with the number of the scan.

A table's file begins with a record of the table's name, and gets one more record for each boundary. Each record has a
checksum. A damaged file is treated as missing, and its table is read again from the beginning. Otherwise a lost
boundary could get another key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from caravan.backfill.boundaries import Boundaries
from caravan.backfill.encoding import DamagedError, FieldReader, FieldWriter, sealed, unsealed
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.private_files import private_folder, private_opener
from wormhole.model.replace_file import replace_file, sync_to_disk
from wormhole.ports.source_state import SourceState

__all__ = ["TableBoundaries"]

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_SCAN: Final = "scan"
_LONGEST: Final = 1 << 16  # the most bytes of a record: keys are never longer


class TableBoundaries:
    """The files of one log; implements :class:`~caravan.backfill.boundaries.BoundaryStore`.

    The folder is made at the first write. ``shared``: stores the number of the last scan for publishers of other hosts
    that may take the log over, because places in scans are compared by that number. Boundaries are not shared, so a
    backfill begins again after a takeover.
    """

    def __init__(self, folder: Path, shared: SourceState | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder = folder
        self._shared = shared
        self._clock = clock

    def next_scan(self) -> int:
        """See the port. If no number can be read, the result is the time, which is higher than all earlier numbers."""
        try:
            last = FieldReader(unsealed(_VERSION, (self._folder / _SCAN).read_bytes())).number()
        except (FileNotFoundError, DamagedError):
            last = int(self._clock.wall())
        if self._shared is not None:
            noted = self._shared.read(_SCAN).get("number", 0)
            last = max(last, noted if isinstance(noted, int) else 0)
            self._shared.write(_SCAN, {"number": last + 1})
        out = FieldWriter()
        out.number(last + 1)
        self._write(self._folder / _SCAN, sealed(_VERSION, out.taken()))
        return last + 1

    def load(self, table: str) -> Boundaries | None:
        """See the port."""
        try:
            records = list(_records((self._path(table)).read_bytes()))
        except FileNotFoundError:
            return None
        except DamagedError:
            _log.warning(
                "where chunks of %s ended cannot be read from %s, which is damaged. Next: nothing; a backfill of the "
                "table begins again",
                table,
                self._path(table),
            )
            return None
        try:
            head = FieldReader(records[0])
            name, fingerprint = head.text(), head.text()
            list_id = int.from_bytes(head.raw(8), "big")
            keys = {(source := FieldReader(record)).number(): source.data() for record in records[1:]}
        except (DamagedError, IndexError):
            return None
        return Boundaries(list_id, fingerprint, keys) if name == table and len(keys) == len(records) - 1 else None

    def replace(self, table: str, boundaries: Boundaries) -> None:
        """See the port."""
        head = FieldWriter()
        head.data(table.encode())
        head.data(boundaries.fingerprint.encode())
        head.raw(boundaries.id.to_bytes(8, "big"))
        records = [head.taken(), *(_boundary(number, key) for number, key in boundaries.keys.items())]
        self._write(self._path(table), b"".join(map(_framed, records)))

    def add(self, table: str, boundaries: Boundaries, number: int, key: bytes) -> None:
        """See the port. If the table's file no longer exists, all boundaries are written."""
        try:
            handle = os.open(self._path(table), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            whole = Boundaries(boundaries.id, boundaries.fingerprint, {**boundaries.keys, number: key})
            self.replace(table, whole)
            return
        try:
            data = _framed(_boundary(number, key))
            if os.write(handle, data) != len(data):
                raise OSError(f"{self._path(table)}: only a part of a boundary was written; is the disk full?")
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _path(self, table: str) -> Path:
        return self._folder / f"{blake2b(table.encode(), digest_size=16).hexdigest()}.boundaries"

    def _write(self, path: Path, data: bytes) -> None:
        private_folder(self._folder)
        replace_file(path, data, opener=private_opener)
        sync_to_disk(self._folder)


def _boundary(number: int, key: bytes) -> bytes:
    out = FieldWriter()
    out.number(number)
    out.data(key)
    return out.taken()


def _framed(record: bytes) -> bytes:
    data = sealed(_VERSION, record)
    return len(data).to_bytes(4, "big") + data


def _records(data: bytes) -> Iterable[bytes]:
    """Raises ``DamagedError``."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > _LONGEST or at + size > len(data):
            raise DamagedError
        yield unsealed(_VERSION, data[at : at + size])
        at += size
