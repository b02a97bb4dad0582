"""Waits for changes in directories: with inotify if available, otherwise by a check every few milliseconds.

inotify(7) is called through ctypes. The standard library has no binding, and five calls do not justify a package.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

__all__ = ["DirectoryWatch"]

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _ONLYDIR, _OVERFLOW = 0x400, 0x800, 0x01000000, 0x4000
_MASK: Final = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_EVENT: Final = struct.Struct("iIII")
_POLL_S: Final = 0.005


def _open_inotify() -> int:
    """A new inotify descriptor; -1 if the system has none left."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return -1


class DirectoryWatch:
    """Waits for changes in one thread. Any thread may call :meth:`wake`.

    ``relevant``: whether changes of a file name are reported. ``polling``: check periodically instead of using inotify.
    The watch also polls while inotify is not available (its limits, some network file systems).
    """

    def __init__(self, relevant: Callable[[str], bool], *, polling: bool = False) -> None:
        self._relevant = relevant
        self._forced = polling
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._inotify = -1 if polling else _open_inotify()
        self._watched = False
        self.created: list[str] = []
        """Relevant names that appeared since the last :meth:`wait`, in order. When polling, some may be missing."""
        self.overflowed = False
        """Whether the last :meth:`wait` may have missed names, because the kernel's queue was full."""
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._register()

    @property
    def polling(self) -> bool:
        """Whether the directories are checked periodically."""
        return self._inotify < 0 or not self._watched

    def watch(self, directories: Iterable[Path]) -> None:
        """Watch these directories. Must be called again later, because a recreated directory needs a new watch.

        If the system had no inotify instance left, another attempt is made.
        """
        if self._inotify < 0 and not self._forced:
            self._inotify = _open_inotify()
            self._register()
        if self._inotify < 0:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        results = [libc.inotify_add_watch(self._inotify, os.fsencode(d), _MASK) for d in directories]
        self._watched = bool(results) and all(result >= 0 for result in results)

    def wait(self, seconds: float) -> bool:
        """Wait for a change. Returns whether files were created, deleted or renamed; false: content changed, or the
        time is up."""
        limit = min(seconds, _POLL_S) if self.polling else seconds
        self.created, self.overflowed = [], False
        ready = {fd for fd, _ in self._poll.poll(max(0.0, limit) * 1000)}
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if self._inotify in ready and self._drain():
            return True
        return self.polling

    def _register(self) -> None:
        if self._inotify >= 0:
            self._poll.register(self._inotify, select.POLLIN)

    def wake(self) -> None:
        """Make :meth:`wait` return now."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors. No thread may be waiting."""
        os.close(self._wake)
        if self._inotify >= 0:
            os.close(self._inotify)

    def _drain(self) -> bool:
        """Read all events. Returns whether one concerns names."""
        names = False
        while True:
            try:
                data = os.read(self._inotify, 65536)
            except BlockingIOError:
                return names
            at = 0
            while at < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length
                self.overflowed |= bool(mask & _OVERFLOW)
                if mask & (_CREATE | _MOVED_TO) and self._relevant(name):
                    self.created.append(name)
                if mask & (_OVERFLOW | _DELETE_SELF | _MOVE_SELF) or (mask & ~_MODIFY and self._relevant(name)):
                    names = True
