"""How far the log was read, kept on disk: an upper bound of what was delivered before a crash.

What a reader hands out may be processed by an application long before a datamarker is acknowledged and stored. When the
server is another one by the next start, or lost the end of its log, only this place shows that something was delivered
that no log holds any more.

It is written before the updates are handed out, once for each piece of log that no reader was at before: a few
microseconds, into the operating system's cache, which outlives the process. `sync` brings it to the disk, about once a
second: a power cut of the publisher's host may lose the places of the last second. Two slots are written in turn, so
that one is always whole.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from wormhole.model.errors import PositionError, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition

__all__ = ["HighWater"]

_SLOT: Final = 1 << 20
_HEAD: Final = Struct(">QII")  # number of the write, bytes, CRC-32


class HighWater:
    """Thread-safe. ``last``: the furthest datamarker that was read in the newest incarnation. An earlier release wrote
    it without its anchor."""

    def __init__(self, path: Path) -> None:
        """Reads what is there. Raises :class:`SourceUnavailable` when that fails."""
        self._path = path
        self._lock = threading.Lock()
        self._dirty = False
        slots: list[tuple[int, Datamarker | None]] = [(0, None)]
        with suppress(FileNotFoundError), self._opened(os.O_RDONLY) as file:
            slots += [_read(file, 0), _read(file, _SLOT)]
        self._number, self.last = max(slots, key=lambda slot: slot[0])

    def rise(self, marker: Datamarker) -> None:
        """The log was read up to ``marker``. Raises :class:`SourceUnavailable` when that cannot be noted."""
        with self._lock:
            if self.last is not None and marker.order <= self.last.order:
                return
            anchor = marker.anchor
            proof = [anchor.id, anchor.checksum, str(anchor.begin)] if anchor is not None else []
            data = json.dumps([str(marker.order), marker.delivered, *proof]).encode()
            if len(data) > _SLOT - _HEAD.size:
                data = json.dumps([str(marker.order), "", *proof]).encode()
            self._number += 1
            head = _HEAD.pack(self._number, len(data), crc32(data))
            with self._opened(os.O_WRONLY | os.O_CREAT) as file:
                os.pwrite(file, head + data, self._number % 2 * _SLOT)
            self.last = marker
            self._dirty = True

    def sync(self) -> None:
        """Bring it to the disk. Raises :class:`SourceUnavailable`."""
        with self._lock:
            dirty, self._dirty = self._dirty, False
        if dirty:
            with self._opened(os.O_WRONLY) as file:
                os.fdatasync(file)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            file = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
            try:
                yield file
            finally:
                os.close(file)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and flags == os.O_RDONLY:
                raise
            raise SourceUnavailable(
                f"{self._path} cannot be read or written: {error.strerror}",
                hint="make space in the publisher's state_dir",
            ) from error


def _read(file: int, begin: int) -> tuple[int, Datamarker | None]:
    head = os.pread(file, _HEAD.size, begin)
    if len(head) < _HEAD.size:
        return 0, None
    number, size, checksum = _HEAD.unpack(head)
    data = os.pread(file, min(size, _SLOT), begin + _HEAD.size)
    if len(data) != size or crc32(data) != checksum:
        return 0, None  # the write of it was cut
    try:
        order, delivered, *proof = json.loads(data)
        place = LogPosition.parse(order)
        anchor = Anchor(str(proof[0]), int(proof[1]), LogPosition.parse(proof[2])) if proof else None
    except (ValueError, TypeError, AttributeError, IndexError, PositionError):
        return 0, None
    return number, Datamarker(place, str(delivered), place, anchor)
