"""The port to the disk of a relay, and its real implementation. Tests use a disk that loses unsynced data.

Every call raises ``OSError``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from wormhole.host.private_files import check_owner, private_folder
from wormhole.model.replace_file import sync_to_disk

__all__ = ["DISK", "Disk", "DiskFile"]


class DiskFile(Protocol):
    """One open file."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at the end of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file after the first ``size`` bytes."""
        ...

    def sync(self) -> None:
        """Make the content survive a loss of power."""
        ...

    def size(self) -> int:
        """Bytes of the file."""
        ...

    def close(self) -> None:
        """Close the file. This also releases a lock on it."""
        ...


class Disk(Protocol):
    """A disk with folders and files."""

    def make_folder(self, folder: Path) -> None:
        """Make the folder and the folders above it if they do not exist. A new folder survives a loss of power. Raises
        ``OSError`` for a folder that another user could change.
        """
        ...

    def names(self, folder: Path) -> Iterable[str]:
        """Names of the files in the folder; empty if the folder does not exist."""
        ...

    def create(self, path: Path) -> DiskFile:
        """Create a file for writing. Raises ``FileExistsError``."""
        ...

    def open(self, path: Path, *, write: bool = False) -> DiskFile:
        """Open an existing file for reading. ``write``: for writing too."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove the file."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make new and removed names in the folder survive a loss of power."""
        ...

    def lock(self, path: Path) -> DiskFile:
        """Lock a file, which is made if it does not exist. Raises ``BlockingIOError`` if another process has it."""
        ...


class _File:
    def __init__(self, number: int) -> None:
        self._number = number

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._number, size, offset)
        if len(data) in (0, size):
            return data
        parts = [data]  # a single call returns at most 2 GiB, and less after a signal
        while data and len(data) < size:
            offset, size = offset + len(data), size - len(data)
            parts.append(data := os.pread(self._number, size, offset))
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._number, data, offset)
        if written < len(data):  # the disk is nearly full, or the data is larger than 2 GiB
            view = memoryview(data)
            while written < len(data):
                written += os.pwrite(self._number, view[written:], offset + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._number, size)

    def sync(self) -> None:
        os.fdatasync(self._number)

    def size(self) -> int:
        return os.fstat(self._number).st_size

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class _Disk:
    def make_folder(self, folder: Path) -> None:
        self._make(folder)
        check_owner(folder)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make(folder.parent)
        private_folder(folder)
        self.sync_folder(folder.parent)

    def names(self, folder: Path) -> Iterable[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return ()

    def create(self, path: Path) -> DiskFile:
        return _File(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def open(self, path: Path, *, write: bool = False) -> DiskFile:
        return _File(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC))

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        sync_to_disk(folder)

    def lock(self, path: Path) -> DiskFile:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(number)
            raise
        return _File(number)


DISK: Final[Disk] = _Disk()
