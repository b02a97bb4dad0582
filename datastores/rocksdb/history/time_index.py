"""Commit times for a log that holds none: a durable index from places to times.

An entry means: transactions that end at this place or later were committed at this time, up to the next entry. At the
live end one entry a second is made, so a time is at most a second early; what was written while nobody read gets the
times at which its files were written. Once given, a place's time never changes, however often it is read:
``covered`` is the place up to which times were given, and nothing before it gets a new entry.

Two files. The index: a header of 8 bytes, then entries of 32: place (20, see ``LogPosition.to_bytes``), microseconds
since 1970 (8), CRC32C of both (4), big endian. Beside it ``covered``: two slots of the same form, written in turn, of
which the later place counts. Both are written before a reader gets the time, so the publisher's death changes none.
They are not synced: after a power cut the times of the last seconds may be given anew, as RocksDB may have lost the
same seconds itself.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c

from wormhole.model.position import LogPosition

__all__ = ["TimeIndex"]

_MAGIC: Final = b"WHTIME\x00\x01"
_TAIL: Final = struct.Struct(">qI")
_ENTRY: Final = LogPosition.SIZE + _TAIL.size
_RESOLUTION_US: Final = 1_000_000
_THIN: Final = 1 << 18  # entries after which the resolution falls, so that an index nobody prunes stays bounded
_PRUNE: Final = 4096


class TimeIndex:
    """Implements :class:`~datastores.rocksdb.log.port.CommitTimes`. Thread-safe.

    ``measure``: size of the WAL with a given number and when it was last written to (microseconds since 1970); zeros:
    unknown. ``now_us``: the wall clock.
    """

    def __init__(
        self,
        path: Path,
        measure: Callable[[int], tuple[int, int]],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._path = path
        self._measure = measure
        self._now_us = now_us
        self._lock = threading.Lock()
        self._entries: list[tuple[bytes, int]] = []
        self._load()
        self._file = path.open("ab", buffering=0)
        self._slots = os.open(path.with_suffix(".covered"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._slot = 0
        self._last_us = self._entries[-1][1] if self._entries else 0
        self._next_us = self._last_us + _RESOLUTION_US
        self._covered = self._load_covered()
        # The newest entry holds for offsets above the first and up to the second in this file: the usual question.
        self._file_number, self._from, self._to = -1, 0, 0

    def committed_at(self, position: LogPosition, live: bool) -> int:
        """See the port. Raises ``OSError`` when the index cannot be written."""
        with self._lock:
            if position.file == self._file_number and self._from <= position.offset <= self._to:
                return self._last_us
            known = self._look_up(position)
            if known is not None:
                return known
        # Not under the lock: it calls others, which report new files under locks of their own.
        size, written_us = self._measure(position.file)
        with self._lock:
            known = self._look_up(position)
            if known is not None:
                return known
            if position <= self._covered:
                return self._insert_first(position, written_us)
            now = self._now_us()
            if not live and written_us:
                now = min(now, written_us)
            if now >= self._next_us or not self._entries:
                self._append(position, now)
            if position.file != self._file_number:
                self._from = position.offset
            # All that is in the file by now was committed by now.
            self._file_number, self._to = position.file, max(size, position.offset)
            self._cover(LogPosition(position.incarnation, position.file, self._to))
            return self._last_us

    def until(self, at_us: int) -> tuple[LogPosition, int] | None:
        """The place before which all that ends was committed at or before ``at_us``, and the time of what ends there
        (0: none yet).

        The earlier one where times are too coarse to decide. ``None``: no time is known at all.
        """
        with self._lock:
            if not self._entries:
                return None
            # An entry's transactions were committed until the next one was due.
            latest = at_us - _RESOLUTION_US * (1 + len(self._entries) // _THIN)
            i = bisect_right(self._entries, latest, key=lambda entry: entry[1])
            if i < len(self._entries):
                return LogPosition.from_bytes(self._entries[i][0]), self._entries[i][1]
            covered = self._covered
            return LogPosition(covered.incarnation, covered.file, covered.offset + 1), 0

    def file_appeared(self, incarnation: int, number: int, written_us: int) -> None:
        """A WAL was created, about when the one before it was last written to (``written_us``; 0: unknown, then now).

        Has to be called before the file is read.
        """
        with self._lock:
            position = LogPosition(incarnation, number, 0)
            if position <= self._covered:
                return
            now = self._now_us()
            us = min(written_us or now, now)
            covered = self._covered
            if us >= self._next_us and covered.incarnation == incarnation and self._entries:
                # The end of the file before, which nobody has read yet.
                self._append(LogPosition(incarnation, covered.file, covered.offset + 1), us)
            self._append(position, us)
            self._cover(position)

    def prune(self, oldest: LogPosition) -> None:
        """Forget what only places before ``oldest`` need, when that is much."""
        with self._lock:
            keep_from = bisect_right(self._entries, (oldest.to_bytes(), 1 << 62)) - 1
            if keep_from < _PRUNE:
                return
            del self._entries[:keep_from]
            temporary = self._path.with_suffix(".new")
            temporary.write_bytes(_MAGIC + b"".join(_encode(key, us) for key, us in self._entries))
            self._file.close()
            temporary.replace(self._path)
            self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Give up the file."""
        with self._lock:
            self._file.close()
            os.close(self._slots)

    def _look_up(self, position: LogPosition) -> int | None:
        """The time that was given to ``position``; ``None``: none was, or it is before all entries."""
        if position > self._covered:
            return None
        i = bisect_right(self._entries, (position.to_bytes(), 1 << 62))
        return self._entries[i - 1][1] if i else None

    def _insert_first(self, position: LogPosition, written_us: int) -> int:
        """An entry before all others, for a file that nobody read before: not later than what follows it."""
        us = min(written_us or self._entries[0][1], self._entries[0][1])
        beginning = LogPosition(position.incarnation, position.file, 0).to_bytes()
        insort(self._entries, (beginning, us))
        self._file.write(_encode(beginning, us))
        return us

    def _append(self, position: LogPosition, us: int) -> None:
        us = max(us, self._last_us)
        key = position.to_bytes()
        self._file.write(_encode(key, us))
        self._entries.append((key, us))
        self._file_number = -1
        self._last_us = us
        self._next_us = us + _RESOLUTION_US * (1 + len(self._entries) // _THIN)

    def _cover(self, position: LogPosition) -> None:
        os.pwrite(self._slots, _encode(position.to_bytes(), 0), self._slot * _ENTRY)
        self._slot ^= 1
        self._covered = position

    def _load_covered(self) -> LogPosition:
        if not self._entries:
            return LogPosition(0, 0, 0)  # the index was lost: the times that were given are not known any more
        places = [LogPosition.from_bytes(self._entries[-1][0])]
        for slot in range(2):
            data = os.pread(self._slots, _ENTRY, slot * _ENTRY)
            if len(data) == _ENTRY and _valid(data):
                places.append(LogPosition.from_bytes(data[: LogPosition.SIZE]))
                if places[-1] == max(places):
                    self._slot = slot ^ 1
        return max(places)

    def _load(self) -> None:
        """Read what is there; what a crash left of the last entry is cut off, so that the next one begins at a
        boundary."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        at = len(_MAGIC)
        if data[:at] != _MAGIC:
            self._path.write_bytes(_MAGIC)
            return
        while at + _ENTRY <= len(data):
            entry = data[at : at + _ENTRY]
            if not _valid(entry):
                break
            self._entries.append((entry[: LogPosition.SIZE], _TAIL.unpack_from(entry, LogPosition.SIZE)[0]))
            at += _ENTRY
        self._entries.sort()
        if at < len(data):
            os.truncate(self._path, at)


def _valid(entry: bytes) -> bool:
    return bool(google_crc32c.value(entry[:-4]) == int.from_bytes(entry[-4:], "big"))


def _encode(key: bytes, us: int) -> bytes:
    data = key + us.to_bytes(8, "big", signed=True)
    return data + int(google_crc32c.value(data)).to_bytes(4, "big")
