"""A lock on a file that one process at a time holds. It ends with its process, and the file has the process id."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["LockHeldError", "take_lock"]


class LockHeldError(Exception):
    """Another descriptor holds the lock. ``process``: the id of its process, ``unknown`` if the file has none."""

    def __init__(self, process: str) -> None:
        super().__init__(f"process {process} holds the lock")
        self.process = process


def take_lock(path: Path) -> int:
    """Take the lock. Returns a descriptor; closing it gives the lock back.

    The file is made, for this user only, if it does not exist. A symbolic link is not followed, because the process id
    would be written to its target. Raises :class:`LockHeldError` and ``OSError``.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise LockHeldError(process) from None
    except BaseException:
        os.close(handle)
        raise
    with contextlib.suppress(OSError):  # the lock works on a full disk too
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
