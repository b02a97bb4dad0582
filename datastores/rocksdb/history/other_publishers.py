"""Notices another process that reads the same database's log, without a file in the database's directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["DatabaseClaim", "holder_of"]


class DatabaseClaim:
    """A lock on the directory at ``path``, of a kind that RocksDB does not use. It ends with the process. The lock
    prevents nothing: it shows a second publisher the process of the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def other(self) -> str:
        """The process that holds the lock, with its command; empty: this process. Raises ``OSError``."""
        there = os.stat(self._path)
        if self._fd >= 0 and not os.path.samestat(there, os.fstat(self._fd)):
            self.close()  # the directory was replaced
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.fstat(self._fd))
            return "" if holder == os.getpid() else _described(holder)
        return ""

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder_of(path: Path) -> str:
    """The process that reads the log of the database at ``path``, with its command; empty: none is visible."""
    with contextlib.suppress(OSError):
        if holder := _holder(path.stat()):
            return _described(holder)
    return ""


def _holder(stat: os.stat_result) -> int:
    """The process that holds the lock, from the kernel's list; 0: unknown (on another host, or in a container)."""
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                return max(0, int(words[4]))
    return 0


def _described(process: int) -> str:
    if not process:
        return "a process that cannot be seen from here"
    words: list[bytes] = []
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    if b"-m" in words:
        words = words[words.index(b"-m") + 1 :]  # without Python's own arguments
    shown = b" ".join(words).decode(errors="backslashreplace").strip()
    return f"process {process} ({shown[:160]})" if shown else f"process {process}"
