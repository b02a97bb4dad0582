"""Lists, verifies and trims the files in a relay's folder, for commands.

Reading needs no lock and changes nothing, so a publisher may write at the same time. Trimming needs the lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from publisher.relay.disk import DISK, Disk, DiskFile
from publisher.relay.file_format import OtherFileError, blocks, read_footer, read_header
from publisher.relay.files import LOCK, number_of
from publisher.relay.lost_key_files import SUFFIX
from wormhole.model.errors import DecodeError, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["FileState", "look", "trim", "verify"]

_STEP: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of one file. ``begin``: ``None`` if the header cannot be read. ``unfinished``: bytes after the last
    whole record of an incomplete file. ``error``: why the file cannot be trusted; empty if no error was found.
    """

    path: Path
    bytes: int
    records: int = 0
    log_bytes: int = 0
    begin: Datamarker | None = None
    end: LogPosition | None = None
    unfinished: int = 0
    error: str = ""


def look(folder: Path, *, disk: Disk = DISK) -> list[FileState]:
    """The state of each file, the oldest first. The state of a completed file comes from its index.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the folder cannot be read.
    """
    return [_state(path, disk, None) for path in _files(folder, disk)]


def verify(folder: Path, progress: Callable[[int, int], None], *, disk: Disk = DISK) -> list[FileState]:
    """The state of each file, like :func:`look`, after reading every record and comparing its checksum. ``progress``:
    called with the bytes read so far and the bytes of all files. Raises the errors of :func:`look`.
    """
    paths = _files(folder, disk)
    sizes = [_size(path, disk) for path in paths]
    found, before, total = [], 0, sum(sizes)
    for path, size in zip(paths, sizes, strict=True):
        found.append(_state(path, disk, lambda done, before=before: progress(before + done, total)))  # type: ignore[misc]
        before += size
    progress(total, total)
    return found


def trim(folder: Path, keep_bytes: int, *, disk: Disk = DISK) -> int:
    """Remove the oldest files until the others take at most ``keep_bytes``. With the last file the keys of lost rows
    are removed too. Returns the number of removed bytes.

    Raises :class:`~wormhole.model.errors.UsageError` while a publisher has locked the folder, and the errors of
    :func:`look`.
    """
    try:
        with contextlib.closing(disk.lock(folder / LOCK)):
            sizes = [(path, _size(path, disk)) for path in _files(folder, disk)]
            total = left = sum(size for _, size in sizes)
            for path, size in sizes:
                if left <= keep_bytes:
                    break
                disk.unlink(path)
                left -= size
            for name in [*disk.names(folder)] if not keep_bytes else ():
                if name.endswith(SUFFIX):
                    disk.unlink(folder / name)
            disk.sync_folder(folder)
    except BlockingIOError:
        raise UsageError(
            f"a publisher has {folder}, and does not report its relay here",
            hint="run the command again in a moment, with -c FILE or -p HOST:PORT; or end the publisher first",
        ) from None
    except OSError as error:
        raise _unreadable(folder, error) from error
    return total - left


def _files(folder: Path, disk: Disk) -> list[Path]:
    try:
        return [folder / name for name in sorted(disk.names(folder)) if number_of(name) is not None]
    except OSError as error:
        raise _unreadable(folder, error) from error


def _unreadable(path: Path, error: OSError) -> SourceUnavailable:
    hint = "run this as the publisher's user, on its host"
    if not isinstance(error, PermissionError):
        hint = "the relay's place must be a folder on a working disk"
    return SourceUnavailable(f"{path} cannot be read: {error.strerror}", hint=hint, code="relay-unwritable")


def _size(path: Path, disk: Disk) -> int:
    try:
        with contextlib.closing(disk.open(path)) as file:
            return file.size()
    except FileNotFoundError:  # removed meanwhile
        return 0
    except OSError as error:
        raise _unreadable(path, error) from error


def _state(path: Path, disk: Disk, progress: Callable[[int], None] | None) -> FileState:
    """The state of a file. ``progress``: called with the bytes read so far; ``None``: trust the file's index."""
    try:
        with contextlib.closing(disk.open(path)) as file:
            return _read(path, file, progress)
    except FileNotFoundError:
        return FileState(path, 0)
    except OSError as error:
        return FileState(path, 0, error=f"it cannot be read: {error.strerror}")


def _read(path: Path, file: DiskFile, progress: Callable[[int], None] | None) -> FileState:
    size = file.size()
    try:
        header = read_header(file)
    except DecodeError as error:
        return FileState(path, size, error=error.message)
    except OtherFileError as error:
        return FileState(path, size, error=f"it is of another release: {error.what}")
    begin, footer = header.begin, read_footer(file, size)
    if footer is not None and progress is None:
        return FileState(path, size, len(footer.blocks), footer.log_bytes, begin, footer.end.order)
    records = log_bytes = pieces = shown = 0
    end, after, damage = begin.order, header.size, ""
    try:
        for block in blocks(file, header.size, size if footer is None else footer.at):
            pieces += block.log_bytes
            records += 1
            if block.whole:
                end, after, log_bytes = block.end, block.after, log_bytes + pieces
                pieces = 0
            if progress is not None and block.after - shown > _STEP:
                shown = block.after
                progress(shown)
    except DecodeError as problem:
        damage = f"behind byte {after}: {problem.message}"
    if footer is None:  # bytes after the last whole record are being written, or are dropped at the next start
        return FileState(path, size, records, log_bytes, begin, end, size - after)
    if not damage and records != len(footer.blocks):
        damage = f"its index has {len(footer.blocks)} records, and there are {records}"
    return FileState(path, size, records, log_bytes, begin, end, error=damage)
