"""One WAL file kept from deletion: a hard link where that is enough, else a copy that follows it.

A link costs nothing while RocksDB has the file too. It is not enough when the folder is on another file system, when
the kernel refuses it (``fs.protected_hardlinks`` and files of another user), and when the database recycles its WAL
files: RocksDB then renames the old file and writes over it, under our link as well.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from datastores.rocksdb.decode.log_format import (
    BAD_ORDER,
    FIRST,
    META,
    MIDDLE,
    ROOM,
    UNKNOWN_KIND,
    Frames,
    frame,
    meta_at,
)
from datastores.rocksdb.history.files import LiveFile

__all__ = ["Pin", "copy_of", "link_to", "relinked", "trim"]

_CHUNK: Final = 1 << 20
_WHOLE: Final = frozenset({META, UNKNOWN_KIND, BAD_ORDER})  # kept all the same: the reader reports what is wrong
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP})


class Pin:
    """A kept WAL. ``path``: where it can be read; ``linked``: by link, else by copy."""

    __slots__ = ("_checked", "_inside", "_source", "inode", "linked", "number", "path", "size")

    def __init__(self, number: int, path: Path, size: int, *, linked: bool, inode: int = 0) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.linked = linked
        self.inode = inode
        self._source = -1  # what is copied, kept open: its last bytes can be had after it was deleted
        self._checked = -1  # offset up to which a recycled file holds this WAL's own records; -1: not recycled
        self._inside = False

    def measured(self) -> int:
        """Bytes that it holds now: a link grows unseen. Raises ``OSError``."""
        return self.path.stat().st_size if self.linked else self.size

    def follow(self) -> bool:
        """Copy what was written since; whether there was any.

        Raises ``OSError`` (the folder's disk is full, for one)."""
        if self._source < 0:
            return False
        if self._checked >= 0:
            return self._follow_recycled()
        before = self.size
        with self.path.open("r+b", buffering=0) as target:
            while data := os.pread(self._source, _CHUNK, self.size):
                target.seek(self.size)
                self.size += target.write(data)
        return self.size > before

    def _follow_recycled(self) -> bool:
        """Copy records of this WAL only: behind them is what the file held before, or what was written over
        them."""
        before = self.size
        frames = Frames()
        with self.path.open("r+b", buffering=0) as target:
            while data := os.pread(self._source, _CHUNK, self._checked):
                at, status = 0, ROOM
                while status == ROOM or status in _WHOLE:
                    at, status = frame(data, self._checked, at, self.number, frames, self._inside, True)
                    if frames.count:
                        self._inside = frames.kinds[frames.count - 1] in {FIRST, MIDDLE}
                    if status in _WHOLE:
                        self._inside = False
                        at = meta_at(data, at).next_at
                if at == 0:
                    break
                target.seek(self._checked)
                written = target.write(data[:at])
                self._checked += written
                self.size = self._checked
                if written < at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        return self.size > before

    def close(self) -> None:
        """Give up the file that is copied; what was copied stays."""
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def delete(self) -> None:
        """Give up the file for good."""
        self.close()
        self.path.unlink(missing_ok=True)

    @property
    def following(self) -> bool:
        """Whether it is a copy whose original is still open."""
        return self._source >= 0

    @classmethod
    def _following(cls, live: LiveFile, path: Path, *, recycled: bool, anew: bool) -> Pin:
        source = os.open(live.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            inode = os.fstat(source).st_ino
            if path.exists() and (anew or path.stat().st_ino == inode):
                path.unlink()  # a link up to now: what is written to it would go into the database's file
            path.touch()
            # A copy that an earlier run began is continued.
            pin = cls(live.number, path, path.stat().st_size, linked=False, inode=inode)
        except OSError:
            os.close(source)
            raise
        pin._source = source
        if recycled:
            # Whether it ended inside a record is not known any more, so a recycled file is read from its beginning.
            pin._checked = pin.size = 0
        return pin


def trim(pin: Pin) -> None:
    """Cut what is no whole record off the end of a copy whose original is gone: nothing will complete it.

    Raises ``OSError``."""
    frames = Frames()
    at = whole = 0
    inside = False
    with pin.path.open("r+b", buffering=0) as file:
        while data := os.pread(file.fileno(), _CHUNK, at):
            stop, status = frame(data, at, 0, pin.number, frames, inside, True)
            if frames.count:
                inside = frames.kinds[frames.count - 1] in {FIRST, MIDDLE}
            if status in _WHOLE:
                inside = False
                stop = meta_at(data, stop).next_at
            at += stop
            if not inside:
                whole = at
            if not stop:
                break
        file.truncate(whole)
    pin.size = whole


def link_to(live: LiveFile, folder: Path) -> Pin | None:
    """Keep ``live`` by a link in ``folder``; ``None`` where that cannot be. Raises ``OSError`` for anything else."""
    path = folder / live.path.name
    try:
        os.link(live.path, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    stat = path.stat()
    return Pin(live.number, path, stat.st_size, linked=True, inode=stat.st_ino)


def relinked(pin: Pin, live: LiveFile) -> Pin | None:
    """Keep ``live`` in place of the link ``pin``, which stays where that fails; ``None`` where no link can be.

    Raises ``OSError``."""
    new = pin.path.with_suffix(".new")
    new.unlink(missing_ok=True)
    try:
        os.link(live.path, new)
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    new.replace(pin.path)
    stat = pin.path.stat()
    return Pin(live.number, pin.path, stat.st_size, linked=True, inode=stat.st_ino)


def copy_of(live: LiveFile, folder: Path, *, recycled: bool, anew: bool = False) -> Pin:
    """Keep ``live`` by a copy that follows it. Raises ``OSError``.

    ``recycled``: the database writes over its old WAL files, so that only records of this one are copied. ``anew``:
    what is kept under its number is deleted, else a copy that was begun is continued.
    """
    return Pin._following(live, folder / live.path.name, recycled=recycled, anew=anew)
