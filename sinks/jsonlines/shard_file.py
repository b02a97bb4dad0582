"""A file while it is written, and the files that processes left when they died. Everything here blocks.

A file is named ``NAME.jsonl.open`` and locked while it is written, and ``NAME.jsonl`` when it is finished. A finished
file holds whole documents and does not change any more. The lock ends with its process, so nothing writes an open file
that is not locked. :func:`finish_left` cuts a document off its end that is not complete, and finishes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from wormhole.host.private_files import private_opener
from wormhole.model.replace_file import sync_to_disk

__all__ = ["FINISHED", "OPEN", "FileGone", "ShardFile", "finish_left", "stem_of"]

FINISHED: Final = ".jsonl"
OPEN: Final = ".jsonl.open"
_PORTION: Final = 1 << 20
_LONGEST: Final = 160  # bytes of a shard's name in a file's name, of which a file system has at most 255


class FileGone(Exception):  # noqa: N818 - a state of the folder
    """The file that is written is not in its folder any more: what was written since the last :meth:`ShardFile.sync` is
    lost.
    """


def stem_of(shard: str) -> str:
    """The beginning of the names of a shard's files. Two shards never have the same one."""
    name = quote(shard, safe="").replace(".", "%2E")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}%{hashlib.sha256(shard.encode()).hexdigest()[:16]}"
    return name


class ShardFile:
    """One file, new and empty. ``number``: the number of its name, at least the one that was asked for.

    Files of one shard sort by epoch and number in the order in which they were begun. Two processes never share a file,
    whatever their numbers.
    """

    def __init__(self, folder: Path, stem: str, epoch: int, number: int) -> None:
        self._folder = folder
        while True:
            name = f"{stem}.{epoch:010d}.{number:08d}"
            self._path, self._finished = folder / f"{name}{OPEN}", folder / f"{name}{FINISHED}"
            try:
                file = private_opener(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                number += 1
                continue
            try:
                if _locked(file, self._path) and not self._finished.exists():
                    break
                self._remove_own(file)
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            number += 1
        self.number = number
        self._file = file
        self._size = 0
        self._named = False

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return self._size

    def write(self, lines: bytes) -> None:
        """Append whole lines. After an ``OSError`` the file is as before, or it is to be abandoned."""
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(lines)

    def sync(self) -> None:
        """Return when everything that was written survives a power failure. Raises :class:`FileGone`, ``OSError``."""
        os.fsync(self._file)
        if not self._named:
            sync_to_disk(self._folder)
            self._named = True
        if not _is_at(self._file, self._path):
            raise FileGone

    def finish(self) -> None:
        """Synchronize, give the file its final name and close it. Raises :class:`FileGone`, ``OSError``."""
        try:
            self.sync()
            if self._size:
                self._path.rename(self._finished)
            else:
                self._path.unlink()
            sync_to_disk(self._folder)
        except FileNotFoundError as error:
            raise FileGone from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the file up as it is. The next process that receives its shard finishes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _remove_own(self, file: int) -> None:
        if _is_at(file, self._path):
            self._path.unlink()


def finish_left(folder: Path, stem: str = "") -> int:
    """Finish the open files, of the shard with this ``stem`` or of all, that nothing writes. Returns how many had a
    document that was not complete. Raises ``OSError``.
    """
    torn = 0
    with os.scandir(folder) as entries:
        left = [entry.name for entry in entries if entry.name.endswith(OPEN)]
    for name in left:
        if stem and not name.startswith(f"{stem}."):
            continue
        path = folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process finished it meanwhile
        try:
            if _locked(file, path):
                torn += _finish(file, path)
        finally:
            os.close(file)
    if left:
        sync_to_disk(folder)
    return torn


def _finish(file: int, path: Path) -> bool:
    size, whole = os.fstat(file).st_size, _whole(file)
    if whole < size:
        os.ftruncate(file, whole)
    if whole:
        os.fsync(file)
        path.rename(path.with_name(path.name.removesuffix(OPEN) + FINISHED))
    else:
        path.unlink()
    return whole < size


def _whole(file: int) -> int:
    """The bytes of the file that are whole documents.

    A file system may keep the length of a file in a power failure and not its bytes, which are zero then. No document
    has such a byte.
    """
    whole = at = 0
    while portion := os.pread(file, _PORTION, at):
        zero = portion.find(b"\0")
        end = portion.rfind(b"\n", 0, zero if zero >= 0 else len(portion)) + 1
        if end:
            whole = at + end
        if zero >= 0:
            break
        at += len(portion)
    return whole


def _locked(file: int, path: Path) -> bool:
    """Lock the file if nothing else has. Whether that was so, and the file is still the one at ``path``."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _is_at(file, path)
    return False


def _is_at(file: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    here = os.fstat(file)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
