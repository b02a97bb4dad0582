"""The files of a relay. One thread writes them, and any number of threads read them.

Records up to a transaction's end can be read once they are written. They survive the end of the process. Synced records
also survive a loss of power. A damaged file is removed, and :attr:`RelayFiles.stretches` shows that its log is missing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import zstandard

from publisher.relay.cursor import Gone, RelayCursor
from publisher.relay.disk import DISK, Disk, DiskFile
from publisher.relay.file_format import PACKING_LEVEL, OtherFileError, header_bytes, record_bytes
from publisher.relay.one_file import OneFile, load
from publisher.relay.record import Record, groups, merge
from publisher.relay.settings import RelayIdentity
from wormhole.model.errors import DecodeError, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment

__all__ = ["LOCK", "NotAdjoiningError", "RelayFile", "RelayFiles", "Stretch", "number_of"]

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"relay-(\d{20})\.wrf")
LOCK: Final = "relay.lock"
"""The lock file in a relay's folder. The only writer holds the lock."""
_FILE_BYTES: Final = 64 << 20
_FILE_RECORDS: Final = 4096


class NotAdjoiningError(ValueError):
    """A segment does not begin where the relay ends."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Adjoining files, which hold the log without a hole. ``synced``: the place up to which they survive a loss of
    power; ``None``: not known yet."""

    begin: Datamarker
    end: Datamarker
    synced: Datamarker | None


@dataclass(frozen=True, slots=True)
class RelayFile:
    """One file up to the end of its last whole transaction. ``bytes``: its size on disk; ``log_bytes``: the bytes of
    log that it records."""

    path: Path
    begin: Datamarker
    end: Datamarker
    bytes: int
    log_bytes: int


def number_of(name: str) -> int | None:
    """The number in the name of a relay file; ``None`` for the name of another file."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


class RelayFiles:
    """The relay files of one folder. One thread calls ``begin``, ``append``, ``abandon``, ``sync``, ``drop_oldest`` and
    ``clear``. Any thread may call the other methods.

    ``hold``: whether files of another identity are refused, because they may be the only copy of their log. Otherwise
    they are removed. ``file_bytes``: the size at which a file is completed.
    """

    def __init__(
        self,
        folder: Path,
        identity: RelayIdentity,
        *,
        hold: bool = False,
        disk: Disk = DISK,
        compress: bool = True,
        file_bytes: int = _FILE_BYTES,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._hold = hold
        self._disk = disk
        self._packer = zstandard.ZstdCompressor(PACKING_LEVEL, write_content_size=True) if compress else None
        self._file_bytes = file_bytes
        self._changing = threading.Lock()
        self._files: list[OneFile] = []
        self._current: OneFile | None = None
        self._number = 0
        self._unlisted: set[OneFile] = set()  # made after the last sync of the folder
        self._listed = False  # whether the folder was synced after the last file was made
        self._lock_file: DiskFile | None = None

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder, and load its sound files.

        Raises :class:`~wormhole.model.errors.UsageError` if another publisher has locked the folder, and for files of
        another identity that must not be removed; :class:`~wormhole.model.errors.SourceUnavailable` if the disk fails.
        """
        try:
            self._disk.make_folder(self._folder)
            self._lock_file = self._take_lock()
            try:
                self._load()
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise SourceUnavailable(
                f"the relay folder {self._folder} cannot be opened: {error.strerror}",
                hint="relay_folder must be a folder on a working disk that the publisher alone may write to",
                code="relay-unwritable",
            ) from error

    def _take_lock(self) -> DiskFile:
        try:
            return self._disk.lock(self._folder / LOCK)
        except BlockingIOError:
            raise UsageError(
                f"the relay folder {self._folder} is in use by another process",
                hint="one publisher writes a relay: end the other process, or set another relay_folder or state_dir",
                code="already-running",
            ) from None

    def _load(self) -> None:
        numbers = sorted(n for name in self._disk.names(self._folder) if (n := number_of(name)) is not None)
        foreign: list[tuple[Path, str]] = []
        found: list[OneFile] = []
        for self._number in numbers:
            path = self._path(self._number)
            try:
                file = load(self._disk, path, self._identity, sync=self._hold)
            except OtherFileError as error:
                foreign.append((path, error.what))
                continue
            except DecodeError as error:
                self._remove(path, error.message)
                continue
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._remove(path, "it cannot be read: input/output error")
                continue
            if file is None:
                self._remove(path, "")
                continue
            while found and file.begin.order < found[-1].end.order:
                # The file was removed before, and a loss of power restored it.
                self._remove(found.pop().path, f"{path.name} holds the same")
            found.append(file)
        self._pass_foreign(foreign)
        for before, file in pairwise(found):
            if before.end == file.begin:
                before.next = file
        self._files = found

    def _pass_foreign(self, foreign: list[tuple[Path, str]]) -> None:
        if not foreign:
            return
        path, what = foreign[0]
        if self._hold:
            raise UsageError(
                f"{path} and {len(foreign) - 1} more relay files were written with other settings: {what}",
                hint="set this back until all flows have passed what these files hold, or give them up: "
                "`wormholectl relay trim --all`",
                code="config-invalid",
            )
        _log.warning("%d relay files in %s are removed: %s", len(foreign), self._folder, what)
        for path, _ in foreign:
            self._disk.unlink(path)

    def close(self) -> None:
        """Complete the newest file, and unlock the folder."""
        self._finish()
        with self._changing:
            for file in self._files:
                file.gone = True
            self._files = []
        lock, self._lock_file = self._lock_file, None
        if lock is not None:
            lock.close()

    # --- what is there --------------------------------------------------------------------------------------------

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches of adjoining files, in the order of the log."""
        with self._changing:
            found: list[Stretch] = []
            files = iter(self._files)
            for file in files:
                begin, synced, goes_on = file.begin, file.synced, file.synced == file.end
                while file.next is not None:
                    file = next(files)
                    if goes_on and file.synced is not None:
                        synced = file.synced
                    goes_on = goes_on and file.synced == file.end
                found.append(Stretch(begin, file.end, synced))
            return tuple(found)

    @property
    def files(self) -> tuple[RelayFile, ...]:
        """Each file, the oldest first."""
        with self._changing:
            return tuple(RelayFile(f.path, f.begin, f.end, f.tail, f.log_bytes) for f in self._files)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        with self._changing:
            return sum(file.tail for file in self._files)

    @property
    def log_bytes(self) -> int:
        """Bytes of log that the present files record."""
        with self._changing:
            return sum(file.log_bytes for file in self._files)

    @property
    def unfinished(self) -> bool:
        """Whether a transaction was begun and its end is not written yet."""
        file = self._current
        return file is not None and not file.gone and bool(file.pieces)

    def oldest_file(self) -> RelayFile | None:
        """The file that is removed first."""
        return next(iter(self.files), None)

    def segments_of_oldest(self) -> Iterator[Segment]:
        """The segments of the oldest file. Raises :class:`~publisher.relay.cursor.Gone`."""
        with self._changing:
            file = self._files[0] if self._files else None
        if file is None:
            return
        end = file.end.order
        with contextlib.closing(RelayCursor(self._disk, file, file.begin, self._lose)) as cursor:
            while (cursor.marker.order < end or cursor.inside) and (segment := cursor.next()) is not None:
                yield segment

    # --- writing --------------------------------------------------------------------------------------------------

    def begin(self, marker: Datamarker) -> None:
        """Continue at ``marker``. If that is not the end of the written records, a new stretch begins.

        Raises ``ValueError`` for a place before the end, and ``OSError`` if no file can be made.
        """
        tip = self._tip()
        if tip is not None and marker.order == tip.order:
            self.abandon()
            return
        if tip is not None and marker.order < tip.order:
            raise ValueError(f"a stretch cannot begin at {marker}, before the end of the relay at {tip}")
        self._finish()
        self._create(marker)

    def append(self, *segments: Segment) -> None:
        """Write segments that adjoin the end of the written records. Small segments are merged into one record.

        Raises :class:`NotAdjoiningError` for a segment that does not adjoin. Raises ``OSError`` if the disk fails; then
        the unfinished transaction is discarded.
        """
        for group in groups(segments):
            self._append(merge(group))

    def _append(self, record: Record) -> None:
        segment = record.segment
        file = self._writable(segment)
        block, data = record_bytes(record, file.tail, self._packer)
        assert file.handle is not None
        try:
            file.handle.write(file.tail, data)
        except OSError:
            self.abandon(torn=True)
            raise
        with self._changing:
            file.pieces.append(block)
            file.tail = block.after
            file.unsynced = True
            if segment.marker is None:
                return
            assert file.blocks is not None
            # The order matters: a listed block must be readable, and the new end must not be seen before the block.
            file.readable = block.after
            file.blocks += file.pieces
            file.end = segment.marker
            file.log_bytes += sum(piece.log_bytes for piece in file.pieces)
            file.pieces.clear()
        if file.tail >= self._file_bytes or len(file.blocks) >= _FILE_RECORDS:
            self._finish()

    def _writable(self, segment: Segment) -> OneFile:
        """The file to which ``segment`` is written."""
        file, tip = self._current, self._tip()
        if file is not None and file.gone:
            file.close()
            file = self._current = None
        if tip is None:
            raise NotAdjoiningError(f"the relay is empty, and no stretch was begun for the log from {segment.begin} on")
        end = file.pieces[-1].end if file is not None and file.pieces else tip.order
        if segment.begin != end and (segment.gap is None or segment.begin < end):
            raise NotAdjoiningError(f"the relay ends at {end}, and the log that was read begins at {segment.begin}")
        return file or self._create(tip)

    def _tip(self) -> Datamarker | None:
        with self._changing:
            return self._files[-1].end if self._files else None

    def _path(self, number: int) -> Path:
        return self._folder / f"relay-{number:020}.wrf"

    def _create(self, begin: Datamarker) -> OneFile:
        self._number += 1
        path = self._path(self._number)
        handle = self._disk.create(path)
        header = header_bytes(self._identity, begin)
        size = len(header)
        file = OneFile(path, begin, begin, size, size, size, [], handle=handle)
        try:
            handle.write(0, header)
        except OSError:
            file.close()
            self._remove(path, "")
            raise
        with self._changing:
            if self._files and self._files[-1].end == begin:
                self._files[-1].next = file
            self._files.append(file)
            self._unlisted.add(file)
            self._listed = False
        self._current = file
        return file

    def abandon(self, *, torn: bool = False) -> None:
        """Discard the written pieces of an unfinished transaction. ``torn``: whether a write failed in the middle."""
        file = self._current
        if file is None or file.gone or not (torn or file.pieces):
            return
        assert file.handle is not None
        try:
            file.handle.truncate(file.readable)
        except OSError as error:
            self._lose(file, f"it cannot be truncated: {error.strerror}")
            return
        with self._changing:
            file.pieces.clear()
            file.tail = file.readable

    def _finish(self) -> None:
        """Complete the newest file if it is open for writing. A file without a whole transaction is removed."""
        self.abandon()
        file, self._current = self._current, None
        if file is None:
            return
        if file.gone:
            file.close()
        elif file.empty:
            self._lose(file, "")
        else:
            try:
                file.complete(sync=self._hold)
            except OSError as error:
                self._lose(file, f"it cannot be synced: {error.strerror}")
            file.close()

    def sync(self) -> None:
        """Make all written whole transactions survive a loss of power.

        Raises the first ``OSError``. The affected files are removed, because their content on the disk is unknown.
        """
        with self._changing:
            unsynced = [file for file in self._files if file.unsynced]
        failed: OSError | None = None
        synced: list[tuple[OneFile, Datamarker]] = []
        for file in unsynced:
            try:
                self._sync_file(file)
            except OSError as error:
                failed = failed or error
                self._lose(file, f"it cannot be synced: {error.strerror}")
            else:
                synced.append((file, file.end))
        try:
            if not self._listed:
                self._disk.sync_folder(self._folder)
        except OSError as error:
            failed = failed or error
            for file in [*self._unlisted]:
                self._lose(file, f"its folder cannot be synced: {error.strerror}")
        else:
            self._listed = True
            with self._changing:
                for file, end in synced:
                    file.synced, file.unsynced = end, False
        self._unlisted.clear()
        if failed is not None:
            raise failed

    def _sync_file(self, file: OneFile) -> None:
        if file.handle is not None:
            file.handle.sync()
            return
        with contextlib.closing(self._disk.open(file.path, write=True)) as handle:
            handle.sync()

    # --- removing -------------------------------------------------------------------------------------------------

    def drop_oldest(self, path: Path | None = None) -> bool:
        """Remove the oldest file. Returns false if the only file is being written and cannot be completed, because it
        is within a transaction or has none. ``path``: remove this file, unless it is gone already.
        """
        with self._changing:
            oldest = self._files[0] if self._files else None
            only = len(self._files) == 1
        if oldest is None:
            return False
        if path not in (None, oldest.path):
            return True
        if only:
            if oldest.empty or oldest.pieces:
                return False
            # The next file still adjoins.
            self._finish()
            self._create(oldest.end)
        self._lose(oldest, "")
        return True

    def clear(self) -> None:
        """Remove every file durably. Raises ``OSError``."""
        file, self._current = self._current, None
        if file is not None:
            file.close()
        with self._changing:
            gone, self._files = self._files, []
            for file in gone:
                file.gone = True
        self._unlisted.clear()
        for file in gone:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(file.path)
        if gone:
            # Without this sync, a loss of power could restore some of the files beside newer files.
            self._disk.sync_folder(self._folder)

    def _lose(self, file: OneFile, why: str) -> None:
        with self._changing:
            if file.gone:
                return
            file.gone = True
            self._files.remove(file)
            for other in self._files:
                if other.next is file:
                    other.next = None
        self._remove(file.path, why)

    def _remove(self, path: Path, why: str) -> None:
        """Remove a file. ``why``: a reason to log; empty for none."""
        if why:
            _log.error("%s is removed: %s. What it held is read from the datastore, if it still has it", path, why)
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("%s cannot be removed: %s", path, error.strerror)

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, marker: Datamarker) -> RelayCursor | None:
        """A cursor at ``marker``, or ``None``. The relay has to hold the log after the marker, and to prove that the
        marker belongs to the same log."""
        place = marker.order
        with self._changing:
            at = bisect_right(self._files, place, key=lambda file: file.begin.order) - 1
            # If one file ends at the place and another begins there, the later file is tried first.
            files = [file for file in self._files[max(at - 1, 0) : at + 1] if place <= file.end.order]
        for file in reversed(files):
            cursor = RelayCursor(self._disk, file, marker, self._lose)
            try:
                if cursor.find():
                    return cursor
            except Gone:
                pass  # the file was damaged and is removed
            except BaseException:
                cursor.close()
                raise
            cursor.close()
        return None
