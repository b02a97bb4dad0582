"""Assigns commit times to a log that has none: a durable index from places to times.

The time of an entry applies to the transactions that end at its place or later, up to the next entry's place. At the
live end one entry is added per second, so a time is at most a second early. Log that was written while no reader ran
gets the times of its files' last writes. An assigned time never changes: times are assigned up to the place
``covered``, and no entry is added before it.

There are two files. The index has a header of 8 bytes, then entries of 32 bytes: place (20, see
``LogPosition.to_bytes``), microseconds since 1970 (8), CRC32C of both (4), big endian. The file ``covered`` has two
slots of the same form, written in turn; the slot with the later place is valid. Both files are written before a reader
gets the time, so a crash of the publisher changes no time. They are not synced. After a power cut the times of the last
seconds may differ; RocksDB may have lost those seconds too.
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
from wormhole.model.replace_file import replace_file

__all__ = ["TimeIndex"]

_MAGIC: Final = b"WHTIME\x00\x01"
_TAIL: Final = struct.Struct(">qI")
_ENTRY: Final = LogPosition.SIZE + _TAIL.size
_RESOLUTION_US: Final = 1_000_000
_THIN: Final = 1 << 18  # after each so many entries the resolution falls a step, so that the index stays small
_PRUNE: Final = 4096


class TimeIndex:
    """Implements :class:`~datastores.rocksdb.log.port.CommitTimes`. Thread-safe.

    ``measure``: returns the size and the last write (microseconds since 1970) of a WAL by number; zeros: unknown.
    ``now_us``: the wall clock.
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
        # Cache: in this file the newest entry applies to the offsets above `_from` and up to `_to`.
        self._file_number, self._from, self._to = -1, 0, 0

    def committed_at(self, position: LogPosition, live: bool) -> int:
        """See the port. Raises ``OSError`` if the index cannot be written."""
        with self._lock:
            if position.file == self._file_number and self._from <= position.offset <= self._to:
                return self._last_us
            known = self._look_up(position)
            if known is not None:
                return known
        # Called without the lock, because it calls code that reports new files while it holds other locks.
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
            # All transactions now in the file are committed.
            self._file_number, self._to = position.file, max(size, position.offset)
            self._cover(LogPosition(position.incarnation, position.file, self._to))
            return self._last_us

    def until(self, at_us: int) -> tuple[LogPosition, int] | None:
        """The place up to which every transaction was committed at or before ``at_us``.

        Returns it with the time of the transactions that end at the place (0: none yet). If the times are too coarse,
        the place is an earlier one. ``None``: no time is known.
        """
        with self._lock:
            if not self._entries:
                return None
            # An entry's transactions were committed before the next entry was due.
            latest = at_us - _RESOLUTION_US * (1 + len(self._entries) // _THIN)
            i = bisect_right(self._entries, latest, key=lambda entry: entry[1])
            if i < len(self._entries):
                return LogPosition.from_bytes(self._entries[i][0]), self._entries[i][1]
            covered = self._covered
            return LogPosition(covered.incarnation, covered.file, covered.offset + 1), 0

    def file_appeared(self, incarnation: int, number: int, written_us: int) -> None:
        """Record that a WAL was created. Must be called before the file is read.

        ``written_us``: the last write to the previous WAL, about when this one was created; 0: unknown, the present is
        used.
        """
        with self._lock:
            position = LogPosition(incarnation, number, 0)
            if position <= self._covered:
                return
            now = self._now_us()
            us = min(written_us or now, now)
            covered = self._covered
            if us >= self._next_us and covered.incarnation == incarnation and self._entries:
                # For the unread end of the previous file.
                self._append(LogPosition(incarnation, covered.file, covered.offset + 1), us)
            self._append(position, us)
            self._cover(position)

    def prune(self, oldest: LogPosition) -> None:
        """Remove the entries that only places before ``oldest`` need, if they are many."""
        with self._lock:
            keep_from = bisect_right(self._entries, (oldest.to_bytes(), 1 << 62)) - 1
            if keep_from < _PRUNE:
                return
            del self._entries[:keep_from]
            entries = b"".join(_encode(key, us) for key, us in self._entries)
            replace_file(self._path, _MAGIC + entries, sync=False)
            self._file.close()
            self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._file.close()
            os.close(self._slots)

    def _look_up(self, position: LogPosition) -> int | None:
        """The time assigned to ``position``; ``None``: no time, or the position is before all entries."""
        if position > self._covered:
            return None
        i = bisect_right(self._entries, (position.to_bytes(), 1 << 62))
        return self._entries[i - 1][1] if i else None

    def _insert_first(self, position: LogPosition, written_us: int) -> int:
        """Add an entry before all others, for an unread file. Its time is at most that of the first entry."""
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
            return LogPosition(0, 0, 0)  # the index was lost, and with it the given times
        places = [LogPosition.from_bytes(self._entries[-1][0])]
        for slot in range(2):
            data = os.pread(self._slots, _ENTRY, slot * _ENTRY)
            if len(data) == _ENTRY and _valid(data):
                places.append(LogPosition.from_bytes(data[: LogPosition.SIZE]))
                if places[-1] == max(places):
                    self._slot = slot ^ 1
        return max(places)

    def _load(self) -> None:
        """Read the index. An incomplete last entry, from a crash, is cut off, so that the next one begins at a
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
