"""Keeps a WAL file from deletion: by a hard link if possible, otherwise by a copy that follows the file.

A link takes no space while RocksDB has the file too. A copy is needed in three cases: the folder is on another file
system; the kernel refuses the link (``fs.protected_hardlinks`` and another user's files); the database recycles WAL
files. To recycle a file RocksDB renames and overwrites it, and a link would change with it.
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
_WHOLE: Final = frozenset({META, UNKNOWN_KIND, BAD_ORDER})  # these bytes are kept too, and the reader reports the fault
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP})


class Pin:
    """A kept WAL. ``path``: the link or the copy. ``linked``: whether it is a link."""

    __slots__ = ("_checked", "_inside", "_source", "inode", "linked", "number", "path", "size")

    def __init__(self, number: int, path: Path, size: int, *, linked: bool, inode: int = 0) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.linked = linked
        self.inode = inode
        self._source = -1  # the open original, whose last bytes can be copied after its deletion
        self._checked = -1  # offset up to which a recycled file holds this WAL's own records; -1: not recycled
        self._inside = False

    def measured(self) -> int:
        """The present size in bytes. A link grows with its original. Raises ``OSError``."""
        return self.path.stat().st_size if self.linked else self.size

    def follow(self) -> bool:
        """Copy the bytes written since the last call. Returns whether there were any.

        Raises ``OSError``, for example when the folder's disk is full."""
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
        """Copy only the records of this WAL. After them the file has older content, or a later WAL has overwritten
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
        """Close the original. The copy stays."""
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def delete(self) -> None:
        """Delete the kept file."""
        self.close()
        self.path.unlink(missing_ok=True)

    @property
    def following(self) -> bool:
        """Whether this is a copy whose original is still open."""
        return self._source >= 0

    @classmethod
    def _following(cls, live: LiveFile, path: Path, *, recycled: bool, anew: bool) -> Pin:
        source = os.open(live.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            inode = os.fstat(source).st_ino
            if path.exists() and (anew or path.stat().st_ino == inode):
                path.unlink()  # a former link, through which a write would change the database's file
            path.touch()
            # A copy that an earlier run of the publisher began is continued.
            pin = cls(live.number, path, path.stat().st_size, linked=False, inode=inode)
        except OSError:
            os.close(source)
            raise
        pin._source = source
        if recycled:
            # The copy may have ended within a record, so a recycled file is read from its beginning.
            pin._checked = pin.size = 0
        return pin


def trim(pin: Pin) -> None:
    """Cut off an incomplete record at the end of a copy whose original is gone. It can never be completed.

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
    """Keep ``live`` by a link in ``folder``; ``None``: no link is possible. Raises ``OSError`` for other failures."""
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
    """Replace the link ``pin`` by a link to ``live``; ``None``: no link is possible.

    Raises ``OSError``; the old link then stays."""
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

    ``recycled``: the database overwrites its old WAL files, so only records of this WAL are copied. ``anew``: a kept
    file of the same number is deleted first; otherwise an earlier copy is continued.
    """
    return Pin._following(live, folder / live.path.name, recycled=recycled, anew=anew)
