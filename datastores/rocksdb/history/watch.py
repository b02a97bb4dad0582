"""Waits for changes in directories: inotify where there is one, else a look every few milliseconds.

inotify(7) is reached through ctypes: the standard library has no binding, and a package for five calls is not worth it.
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
    """A new inotify descriptor; -1 where the system gives none."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return -1


class DirectoryWatch:
    """One waiting thread; :meth:`wake` may be called by any.

    ``relevant``: which file names matter; changes of others are not reported. ``polling``: look at intervals instead of
    using inotify, also what happens by itself where inotify gives out (its limits, some network file systems).
    """

    def __init__(self, relevant: Callable[[str], bool], *, polling: bool = False) -> None:
        self._relevant = relevant
        self._forced = polling
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._inotify = -1 if polling else _open_inotify()
        self._watched = False
        self.created: list[str] = []
        """Relevant names that appeared since the last :meth:`wait`, in order; not all of them where it is polling."""
        self.overflowed = False
        """Whether names may be missing from those that the last :meth:`wait` found: the kernel's queue was full."""
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._register()

    @property
    def polling(self) -> bool:
        """Whether it looks at intervals."""
        return self._inotify < 0 or not self._watched

    def watch(self, directories: Iterable[Path]) -> None:
        """Watch these from now on; to be repeated, since a directory that was made anew has to be watched anew.

        Where the system had no inotify instance left, it is asked again: other programs give theirs back.
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
        """Whether files appeared, went or were renamed; false: at most their content grew, or the time is up."""
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
        """Let :meth:`wait` return now."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give up the descriptors. Nobody may be waiting."""
        os.close(self._wake)
        if self._inotify >= 0:
            os.close(self._inotify)

    def _drain(self) -> bool:
        """Read all events; whether one was about names."""
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
