"""Creates files and folders that only their owner may read, whatever the umask of the shell or service manager."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["check_owner", "keep_private", "private_folder", "private_opener"]

_ONLY_MINE: Final = 0o077


def keep_private() -> None:
    """From now on files that this process and its children create have mode 0600, and folders 0700.

    State folders hold tokens, datamarkers and pinned log files, which contain the database's data. Existing files keep
    their mode. A pinned file is a hard link to the database's own file: its folder protects it.
    """
    os.umask(_ONLY_MINE)


def private_opener(path: str, flags: int) -> int:
    """An opener for :func:`open`: a new file has mode 0600. If root creates it, it gets the owner of the folder.

    Raises ``OSError`` for a symbolic link: in a folder of another user the link could lead to any file of root.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _give(handle, os.path.dirname(path) or ".")
    except BaseException:
        os.close(handle)
        raise
    return handle


def private_folder(path: Path) -> None:
    """Make the folder, and the missing ones above it, with mode 0700. If root makes one, it gets the owner of the
    folder above it.

    Raises ``OSError``, also for a symbolic link that another user made: it could lead this process anywhere.
    """
    _check_link(path)
    if path.is_dir():
        return
    private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give(handle, path.parent)
    finally:
        os.close(handle)


def check_owner(path: Path) -> None:
    """Raise ``OSError`` for a folder that another user made, leads to by a symbolic link, may write to, or may replace.
    That user could replace the files in it.
    """
    _check_link(path)
    found = path.stat()
    if found.st_uid not in {0, os.geteuid()}:
        raise OSError(errno.EPERM, f"it belongs to another user (uid {found.st_uid})", str(path))
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "every user" if found.st_mode & stat.S_IWOTH else f"every user of the group {found.st_gid}"
        raise OSError(errno.EPERM, f"{who} may write to it", str(path))
    for above in path.resolve().parents:
        if (mode := above.stat().st_mode) & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise OSError(errno.EPERM, f"every user may replace it, since every user may write to {above}", str(path))


def _check_link(path: Path) -> None:
    if path.is_symlink() and path.lstat().st_uid not in {0, os.geteuid()}:
        raise OSError(errno.ELOOP, "it is a symbolic link of another user", str(path))


def _give(handle: int, folder: str | Path) -> None:
    """Give a new file or folder to the folder's owner. An operator who is root must leave nothing that the publisher's
    own user cannot read.
    """
    if os.geteuid() == 0 and (owner := os.stat(folder)).st_uid != os.fstat(handle).st_uid:
        os.fchown(handle, owner.st_uid, owner.st_gid)
