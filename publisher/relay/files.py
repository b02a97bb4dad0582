"""The files of a relay: written by one thread, read by many, each at a place of its own.

What was written up to a transaction's end can be read at once. It survives the end of the process, and a loss of power
as far as it was synced. A file that cannot be trusted any more is removed: what it held is then missing, which
:attr:`RelayFiles.stretches` shows.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import zstandard

from publisher.relay.disk import DISK, Disk, DiskFile
from publisher.relay.file_format import (
    BLOCK_SIZE,
    PACKING_LEVEL,
    Block,
    OtherFileError,
    block_at,
    blocks,
    footer_bytes,
    header_bytes,
    read_footer,
    read_header,
    record_bytes,
    record_of,
)
from publisher.relay.record import Record, cut, groups, merge, proves
from publisher.relay.settings import RelayIdentity
from wormhole.model.errors import DecodeError, SourceUnavailable, UsageError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment

__all__ = ["Cursor", "Gone", "NotAdjoiningError", "RelayFile", "RelayFiles", "Stretch", "number_of"]

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"relay-(\d{20})\.wrf")
_LOCK: Final = "relay.lock"
_FILE_BYTES: Final = 64 << 20
_FILE_RECORDS: Final = 4096
_WINDOW: Final = 256 << 10


class Gone(SourceUnavailable):
    """The files that a cursor reads were removed: what is there now has to be looked up again."""


class NotAdjoiningError(ValueError):
    """A segment does not begin where the relay ends."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Files that adjoin. ``synced``: up to there they survive a loss of power; ``None``: not known yet."""

    begin: Datamarker
    end: Datamarker
    synced: Datamarker | None


@dataclass(frozen=True, slots=True)
class RelayFile:
    """One file, up to the end of its last whole transaction; ``bytes``: on disk, of ``log_bytes`` of log."""

    path: Path
    begin: Datamarker
    end: Datamarker
    bytes: int
    log_bytes: int


def number_of(name: str) -> int | None:
    """The number of the relay file of this name; ``None``: it is none."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


@dataclass(slots=True, eq=False)
class _File:
    """``readable``: where the last whole transaction ends, ``tail``: where the next block is written. ``blocks``: of
    whole transactions; ``None``: they are in the file's index. ``pieces``: blocks of a transaction that goes on.
    ``next``: the file that adjoins. ``gone``: the file was removed. ``handle``: while it is written.
    """

    path: Path
    begin: Datamarker
    end: Datamarker
    first: int
    readable: int
    tail: int
    blocks: list[Block] | None
    log_bytes: int = 0
    synced: Datamarker | None = None
    unsynced: bool = True
    pieces: list[Block] = field(default_factory=list)
    next: _File | None = None
    gone: bool = False
    handle: DiskFile | None = None

    @property
    def empty(self) -> bool:
        return self.readable == self.first

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()


class RelayFiles:
    """The relay files of one folder. ``begin``, ``append``, ``abandon``, ``sync``, ``drop_oldest`` and ``clear`` are
    called by one thread, all else by any.

    ``hold``: files of another identity are refused, since nobody else may have what they hold; otherwise they are
    removed. ``file_bytes``: a file is completed when it has that many.
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
        self._files: list[_File] = []
        self._current: _File | None = None
        self._number = 0
        self._unlisted: set[_File] = set()  # made since the folder was synced
        self._lock_file: DiskFile | None = None

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the folder, and what is whole in it.

        Raises :class:`~wormhole.model.errors.UsageError` when another publisher has the folder, and for files of
        another identity that must not be removed; :class:`~wormhole.model.errors.SourceUnavailable` when the disk does
        not answer as it should.
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
                hint="relay_folder must be a folder on a working disk that the publisher may write to",
            ) from error

    def _take_lock(self) -> DiskFile:
        try:
            return self._disk.lock(self._folder / _LOCK)
        except BlockingIOError:
            raise UsageError(
                f"the relay folder {self._folder} is in use by another process",
                hint="one publisher writes a relay: end the other process, or set another relay_folder or state_dir",
            ) from None

    def _load(self) -> None:
        numbers = sorted(n for name in self._disk.names(self._folder) if (n := number_of(name)) is not None)
        foreign: list[tuple[Path, str]] = []
        found: list[_File] = []
        for self._number in numbers:
            path = self._path(self._number)
            try:
                file = self._read_file(path)
            except OtherFileError as error:
                foreign.append((path, error.what))
                continue
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._remove(path, "it cannot be read: input/output error")
                continue
            if file is None:
                continue
            while found and file.begin.order < found[-1].end.order:
                # It was removed once, and a loss of power brought it back.
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
            )
        _log.warning("%d relay files in %s are removed: %s", len(foreign), self._folder, what)
        for path, _ in foreign:
            self._disk.unlink(path)

    def _read_file(self, path: Path) -> _File | None:
        """A file as it was left; ``None``: there is no whole transaction in it, and it was removed."""
        handle = self._disk.open(path, write=True)
        try:
            size = handle.size()
            try:
                header = read_header(handle)
            except DecodeError as error:
                self._remove(path, error.message)
                return None
            if what := header.differs_from(self._identity):
                raise OtherFileError(what)
            footer = read_footer(handle, size)
            if footer is not None:
                at = footer.at
                return _File(path, header.begin, footer.end, header.size, at, size, None, footer.log_bytes)
            file = _File(path, header.begin, header.begin, header.size, header.size, header.size, [], handle=handle)
            self._read_torn(file, size)
            if file.empty:
                self._remove(path, "")
                return None
            self._complete(file)
            return file
        finally:
            handle.close()

    def _read_torn(self, file: _File, size: int) -> None:
        """Find the last whole transaction of a file that was not completed, and forget what is behind it."""
        assert file.handle is not None
        assert file.blocks is not None
        found: list[Block] = []
        whole = 0
        with contextlib.suppress(DecodeError):
            for block in blocks(file.handle, file.first, size):
                found.append(block)
                whole = len(found) if block.whole else whole
        while whole:
            last = found[whole - 1]
            try:
                marker = record_of(last, file.handle.read(last.offset + BLOCK_SIZE, last.stored)).segment.marker
            except DecodeError as error:
                _log.error("%s, offset %d: %s", file.path, last.offset, error.message)
                marker = None
            if marker is not None:
                file.end, file.readable = marker, last.after
                break
            whole = max((i for i in range(1, whole) if found[i - 1].whole), default=0)
        file.blocks += found[:whole]
        file.log_bytes = sum(block.log_bytes for block in file.blocks)
        if file.readable < size and not file.empty:
            _log.info("%s: %d bytes behind the last whole transaction are dropped", file.path, size - file.readable)
            file.handle.truncate(file.readable)
        file.tail = file.readable

    def close(self) -> None:
        """Complete the file that is written, and give the folder up."""
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
        """Files that adjoin, ascending."""
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
        """Bytes of log that were read for what is there."""
        with self._changing:
            return sum(file.log_bytes for file in self._files)

    @property
    def unfinished(self) -> bool:
        """Whether the last transaction was not written to its end yet."""
        file = self._current
        return file is not None and not file.gone and bool(file.pieces)

    def oldest_file(self) -> RelayFile | None:
        """The file that goes first."""
        return next(iter(self.files), None)

    def segments_of_oldest(self) -> Iterator[Segment]:
        """What the oldest file holds. Raises :class:`Gone`."""
        oldest = self.oldest_file()
        cursor = None if oldest is None else self._cursor_at_begin(oldest.path)
        if oldest is None or cursor is None:
            return
        with contextlib.closing(cursor):
            while cursor.marker.order < oldest.end.order or cursor.inside:
                segment = cursor.next()
                if segment is None:
                    return
                yield segment

    def _cursor_at_begin(self, path: Path) -> Cursor | None:
        with self._changing:
            file = next((file for file in self._files if file.path == path), None)
        return None if file is None else Cursor(self, self._disk, file, file.first, file.begin)

    # --- writing --------------------------------------------------------------------------------------------------

    def begin(self, marker: Datamarker) -> None:
        """Go on at ``marker``: where that is not the end of what was written, a stretch begins.

        Raises ``ValueError`` for a place before the end, ``OSError`` when no file can be made.
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
        """Write segments, which follow what was written, small ones together.

        Raises :class:`NotAdjoiningError` for one that does not follow. Raises ``OSError`` when the disk fails; then
        what was written after the last whole transaction is forgotten.
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
            file.blocks += file.pieces
            file.log_bytes += sum(piece.log_bytes for piece in file.pieces)
            file.pieces.clear()
            file.end, file.readable = segment.marker, block.after
        if file.tail >= self._file_bytes or len(file.blocks) >= _FILE_RECORDS:
            self._finish()

    def _writable(self, segment: Segment) -> _File:
        """The file that ``segment`` is written to."""
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

    def _create(self, begin: Datamarker) -> _File:
        self._number += 1
        path = self._path(self._number)
        handle = self._disk.create(path)
        header = header_bytes(self._identity, begin)
        size = len(header)
        file = _File(path, begin, begin, size, size, size, [], handle=handle)
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
        self._current = file
        return file

    def abandon(self, *, torn: bool = False) -> None:
        """Forget what was written of a transaction that did not end. ``torn``: a write failed in the middle."""
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
        """Complete the file that is written, if there is one; one without a whole transaction is removed."""
        self.abandon()
        file, self._current = self._current, None
        if file is None:
            return
        if file.gone:
            file.close()
        elif file.empty:
            self._lose(file, "")
        else:
            self._complete(file)
            file.close()

    def _complete(self, file: _File) -> None:
        """Write the index of ``file``. Without one, it is read block by block at the next start."""
        assert file.handle is not None
        assert file.blocks is not None
        footer = footer_bytes(file.blocks, file.end, file.log_bytes, file.tail)
        try:
            file.handle.write(file.tail, footer)
        except OSError as error:
            _log.warning("%s: its index cannot be written: %s", file.path, error.strerror)
            with contextlib.suppress(OSError):
                file.handle.truncate(file.readable)
            return
        with self._changing:
            file.tail += len(footer)
            file.blocks = None
            file.unsynced = True

    def sync(self) -> None:
        """Return when all whole transactions that were written survive a loss of power.

        Raises the first ``OSError``; the files concerned are removed, for nobody knows what the disk has of them.
        """
        with self._changing:
            unsynced = [file for file in self._files if file.unsynced]
        failed: OSError | None = None
        synced: list[tuple[_File, Datamarker]] = []
        for file in unsynced:
            try:
                self._sync_file(file)
            except OSError as error:
                failed = failed or error
                self._lose(file, f"it cannot be synced: {error.strerror}")
            else:
                synced.append((file, file.end))
        try:
            if unsynced:
                self._disk.sync_folder(self._folder)
        except OSError as error:
            failed = failed or error
            for file in [*self._unlisted]:
                self._lose(file, f"its folder cannot be synced: {error.strerror}")
        else:
            with self._changing:
                for file, end in synced:
                    file.synced, file.unsynced = end, False
        self._unlisted.clear()
        if failed is not None:
            raise failed

    def _sync_file(self, file: _File) -> None:
        if file.handle is not None:
            file.handle.sync()
            return
        with contextlib.closing(self._disk.open(file.path, write=True)) as handle:
            handle.sync()

    # --- removing -------------------------------------------------------------------------------------------------

    def drop_oldest(self) -> bool:
        """Remove the oldest file; false when there is none that is whole: the only one is written, in the middle of a
        transaction or before the first one.
        """
        with self._changing:
            oldest = self._files[0] if self._files else None
            only = len(self._files) == 1
        if oldest is None:
            return False
        if only:
            if oldest.empty or oldest.pieces:
                return False
            # What comes next still follows.
            self._finish()
            self._create(oldest.end)
        self._lose(oldest, "")
        return True

    def clear(self) -> None:
        """Remove every file, for good. Raises ``OSError``."""
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
            # Else a loss of power could bring a part of them back, beside the next ones.
            self._disk.sync_folder(self._folder)

    def lose(self, path: Path, why: str) -> None:
        """Remove a file that cannot be trusted."""
        with self._changing:
            file = next((file for file in self._files if file.path == path), None)
        if file is not None:
            self._lose(file, why)

    def _lose(self, file: _File, why: str) -> None:
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
        """Remove a file, with a line in the log if there is a reason that matters."""
        if why:
            _log.error("%s is removed: %s. What it held is read from the datastore, if it still has it", path, why)
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("%s cannot be removed: %s", path, error.strerror)

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, marker: Datamarker) -> Cursor | None:
        """A cursor behind ``marker``, if the relay holds what follows and proves that the marker is of the same log."""
        place = marker.order
        with self._changing:
            files = [*self._files]
        at = bisect_right(files, place, key=lambda file: file.begin.order) - 1
        # A file that begins at the place follows one that ends there.
        for file in files[max(at - 1, 0) : at + 1][::-1]:
            if place <= file.end.order:
                try:
                    cursor = self._find_in(file, marker)
                except Gone:
                    cursor = None
                if cursor is not None:
                    return cursor
        return None

    def _find_in(self, file: _File, marker: Datamarker) -> Cursor | None:
        place = marker.order
        cursor = Cursor(self, self._disk, file, file.first, marker)
        try:
            known = cursor.blocks()
            # Pieces of a transaction end where it begins, behind what ended there.
            at = bisect_right(known, (place, 0), key=lambda block: (block.end, 0 if block.whole else 1))
            ends = known[at - 1].end if at else file.begin.order
            if ends == place:
                first = at
                while first and known[first - 1].begin == place and known[first - 1].gap:
                    first -= 1  # nobody knows whether the reader was told of the gap: it is told again
                if any(cursor.proven_at(known, n) for n in range(at, first - 1, -1)):
                    cursor.go_to(known[first - 1].after if first else file.first)
                    return cursor
            elif (
                at < len(known)
                and known[at].begin < place
                and known[at].end.incarnation == place.incarnation
                and cursor.proven_in(known, at)
            ):
                cursor.go_to(known[at].offset, place)
                return cursor
        except BaseException:
            cursor.close()
            raise
        cursor.close()
        return None


class Cursor:
    """A place in the relay that moves forward, used by one thread. ``marker``: after the last segment that ends between
    transactions.
    """

    def __init__(self, files: RelayFiles, disk: Disk, file: _File, offset: int, marker: Datamarker) -> None:
        self._files = files
        self._disk = disk
        self._file = file
        self._offset = offset
        self._from: LogPosition | None = None
        self._handle: DiskFile | None = None
        self._window = b""
        self._window_at = 0
        self.marker = marker
        self.inside = False
        """Whether the last segment ends inside a transaction."""

    def close(self) -> None:
        """Close the file that is read; idempotent."""
        handle, self._handle, self._window = self._handle, None, b""
        if handle is not None:
            handle.close()

    def next(self) -> Segment | None:
        """The next segment; ``None`` at the end of what is there. It may come later, where the stretch grows.

        Raises :class:`Gone` when the file was removed, and when it is damaged: then it is removed.
        """
        while True:
            file = self._file
            if file.gone:
                raise _gone(file.path)
            following = file.next  # first: the file does not grow any more when another one follows
            if self._offset < file.readable:
                break
            if following is None:
                return None
            self.close()
            self._file, self._offset = following, following.first
        block, record = self._read(self._offset)
        self._offset = block.after
        segment = record.segment
        if self._from is not None:
            segment, self._from = cut(segment, self._from), None
        self.inside = segment.marker is None
        if segment.marker is not None:
            self.marker = segment.marker
        return segment

    # --- finding --------------------------------------------------------------------------------------------------

    def blocks(self) -> list[Block]:
        """The blocks of the file, up to the end of its last whole transaction."""
        file = self._file
        known = file.blocks
        if known is not None:
            return known[:]
        with self._reading(file.readable):
            handle = self._open()
            footer = read_footer(handle, handle.size())
            if footer is None:
                raise DecodeError("the index is damaged")
            return footer.blocks

    def go_to(self, offset: int, place: LogPosition | None = None) -> None:
        """Go on with the block at ``offset``; ``place``: without what ends there or before it."""
        self._offset, self._from = offset, place

    def proven_at(self, known: list[Block], at: int) -> bool:
        """Whether the marker is proven at the end of the block before ``at``, or at the beginning of the file."""
        if not at:
            return self.marker.anchor in (None, self._file.begin.anchor)
        return self.proven_in(known, at - 1)

    def proven_in(self, known: list[Block], at: int) -> bool:
        """Whether the marker is proven in the block."""
        _, record = self._read(known[at].offset)
        if proves(record, None, self.marker):
            return True
        return proves(record, self._anchor_before(known, at), self.marker)

    def _anchor_before(self, known: list[Block], at: int) -> Anchor | None:
        before = next((block for block in reversed(known[:at]) if block.whole), None)
        if before is None:
            return self._file.begin.anchor
        marker = self._read(before.offset)[1].segment.marker
        return None if marker is None else marker.anchor

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _read(self, offset: int) -> tuple[Block, Record]:
        with self._reading(offset):
            block = block_at(offset, self._bytes(offset, BLOCK_SIZE), self._file.readable)
            return block, record_of(block, self._bytes(offset + BLOCK_SIZE, block.stored))

    def _bytes(self, offset: int, size: int) -> bytes:
        begin = offset - self._window_at
        if begin < 0 or begin + size > len(self._window):
            wanted = min(max(size, _WINDOW), self._file.readable - offset)
            self._window, self._window_at, begin = self._open().read(offset, wanted), offset, 0
        return self._window[begin : begin + size]

    def _open(self) -> DiskFile:
        if self._handle is None:
            self._handle = self._disk.open(self._file.path)
        return self._handle

    @contextlib.contextmanager
    def _reading(self, offset: int) -> Iterator[None]:
        path = self._file.path
        try:
            yield
        except FileNotFoundError:
            raise _gone(path) from None
        except DecodeError as error:
            why = f"offset {offset}: {error.message}"
        except OSError as error:
            if error.errno != errno.EIO:
                raise SourceUnavailable(
                    f"{path} cannot be read: {error.strerror}", hint="the publisher must be able to read its own files"
                ) from error
            why = f"offset {offset}: {error.strerror}"
        else:
            return
        self.close()
        if not self._file.gone:
            self._files.lose(path, why)
        raise Gone(f"the relay file {path} was removed: {why}", hint="look after the disk: its content has changed")


def _gone(path: Path) -> Gone:
    return Gone(f"the relay file {path} was removed while it was read", hint="it is opened again by itself")
