"""Writes one file of JSON lines, and finishes the files that dead processes left. Every function here blocks.

While a file is written, it is locked and named ``NAME.jsonl.open``. A finished file is named ``NAME.jsonl``. It holds
whole documents and never changes. The lock ends with its process, so an open file that is not locked has no writer.
:func:`finish_left` removes an incomplete document from the end of such a file, and finishes the file.
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
_LONGEST: Final = 160  # the most bytes of a shard's name in a file's name, which may have 255 bytes


class FileGone(Exception):  # noqa: N818 - a state of the folder
    """The written file is no longer in its folder. The documents since the last :meth:`ShardFile.sync` are lost."""


def stem_of(shard: str) -> str:
    """The beginning of the names of a shard's files, which differs between any two shards."""
    name = quote(shard, safe="").replace(".", "%2E")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}%{hashlib.sha256(shard.encode()).hexdigest()[:16]}"
    return name


class ShardFile:
    """One file, new and empty. ``number``: the number in its name, which is at least the requested one.

    The names of a shard's files sort in the order in which the files were begun. Two processes never share a file.
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
        """Append whole lines. After an ``OSError`` the file is unchanged, or the caller has to abandon it."""
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
        """Close the file without finishing it. The next process that receives the shard finishes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _remove_own(self, file: int) -> None:
        if _is_at(file, self._path):
            self._path.unlink()


def finish_left(folder: Path, stem: str = "") -> int:
    """Finish the open files that have no writer. ``stem``: only files of the shard with this stem; empty: all files.
    Returns how many files had an incomplete document. Raises ``OSError``.
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
    """The number of bytes of whole documents at the beginning of the file.

    After a power failure a file may have its length, but zero bytes as content. No document contains a zero byte.
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
    """Try to lock the file. Returns whether it is locked now, and is still the file at ``path``."""
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
