"""A disk in memory that keeps apart what was not synced: it loses power after any operation, fills up and breaks."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from enum import Enum, auto
from pathlib import Path

__all__ = ["FakeDisk", "PowerLostError", "Survives"]

_PAGE = 512


class PowerLostError(BaseException):
    """The power is gone: nothing that runs gets any further."""


class Survives(Enum):
    """What a disk has of that which was not synced when its power went."""

    NOTHING = auto()
    NAMES = auto()
    """Files that were made and removed, not what was written into them."""
    CONTENT = auto()
    """What was written, not the names of files that were made and removed."""
    TORN = auto()
    """All but the end of the last write into each file."""
    HOLES = auto()
    """All but some pages, which are zero; and not that files were cut."""


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.written = 0  # where the last write began
        self.longest = b""  # before files were cut

    def after(self, survives: Survives, chance: random.Random) -> bytes:
        data = bytes(self.data)
        match survives:
            case Survives.NOTHING | Survives.NAMES:
                return self.synced
            case Survives.CONTENT:
                return data
            case Survives.TORN:
                return data if data == self.synced else data[: (self.written + len(data)) // 2]
            case Survives.HOLES:
                data += self.longest[len(data) :]
                pages = [data[at : at + _PAGE] for at in range(0, len(data), _PAGE)]
                for at, page in enumerate(pages):
                    if page != self.synced[at * _PAGE : at * _PAGE + _PAGE] and chance.random() < 0.5:
                        pages[at] = (self.synced[at * _PAGE : at * _PAGE + _PAGE] + bytes(_PAGE))[: len(page)]
                return b"".join(pages)


class FakeDisk:
    """See :class:`~publisher.relay.disk.Disk`. ``operations`` counts what changes it; before the one with the number
    ``power_lost_at`` the power goes. ``capacity``: bytes of all files. ``fails``: is asked before each operation, named
    as the port does.
    """

    def __init__(self, *, power_lost_at: int = -1, capacity: int = 1 << 30) -> None:
        self.operations = 0
        self.power_lost_at = power_lost_at
        self.capacity = capacity
        self.fails: Callable[[str, Path], OSError | None] = lambda operation, path: None
        self._names: dict[Path, _Inode] = {}
        self._synced_names: dict[Path, _Inode] = {}
        self._locked: set[Path] = set()

    @staticmethod
    def error(number: int) -> OSError:
        """The error with this number."""
        return OSError(number, os.strerror(number))

    def break_down(self, operation: str, number: int, *, path: str = "") -> None:
        """Let this operation fail from now on, of files whose name has ``path`` in it."""
        self.fails = lambda one, of: self.error(number) if one == operation and path in of.name else None

    def work(self) -> None:
        """Let everything succeed again."""
        self.fails = lambda operation, path: None

    def after_power_loss(self, survives: Survives) -> FakeDisk:
        """The disk as the next process finds it."""
        chance = random.Random(self.power_lost_at)
        found = FakeDisk(capacity=self.capacity)
        keeps_names = survives in (Survives.NAMES, Survives.TORN, Survives.HOLES)
        for path, inode in (self._names if keeps_names else self._synced_names).items():
            left = found._names[path] = found._synced_names[path] = _Inode()
            left.synced = inode.after(survives, chance)
            left.data[:] = left.synced
        return found

    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(inode.data) for inode in self._names.values())

    def content(self, name: str) -> bytearray:
        """What a file holds, to be looked at or damaged."""
        return next(inode.data for path, inode in self._names.items() if path.name == name)

    def step(self, operation: str, path: Path) -> None:
        """An operation is about to be done."""
        if self.operations == self.power_lost_at:
            raise PowerLostError
        error = self.fails(operation, path)
        if error is not None:
            raise error
        self.operations += operation in ("create", "write", "truncate", "sync", "unlink", "sync_folder")

    # --- the port -------------------------------------------------------------------------------------------------

    def make_folder(self, folder: Path) -> None:
        """See the port; folders are not told apart."""
        self.step("make_folder", folder)

    def names(self, folder: Path) -> Iterable[str]:
        """See the port."""
        self.step("names", folder)
        return [path.name for path in self._names if path.parent == folder]

    def create(self, path: Path) -> FakeFile:
        """See the port."""
        self.step("create", path)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._names[path] = _Inode()
        return FakeFile(self, path, self._names[path])

    def open(self, path: Path, *, write: bool = False) -> FakeFile:
        """See the port."""
        self.step("open", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return FakeFile(self, path, self._names[path])

    def unlink(self, path: Path) -> None:
        """See the port."""
        self.step("unlink", path)
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def sync_folder(self, folder: Path) -> None:
        """See the port."""
        self.step("sync_folder", folder)
        self._synced_names = dict(self._names)

    def lock(self, path: Path) -> FakeFile:
        """See the port."""
        self.step("lock", path)
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        self._locked.add(path)
        return FakeFile(self, path, _Inode(), on_close=lambda: self._locked.discard(path))


class FakeFile:
    """See :class:`~publisher.relay.disk.DiskFile`."""

    def __init__(
        self, disk: FakeDisk, path: Path, inode: _Inode, *, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._disk = disk
        self._path = path
        self._inode: _Inode | None = inode
        self._on_close = on_close

    def _at(self, operation: str) -> _Inode:
        self._disk.step(operation, self._path)
        if self._inode is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inode

    def read(self, offset: int, size: int) -> bytes:
        """See the port."""
        return bytes(self._at("read").data[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        """See the port: a disk that gets full takes a part."""
        inode = self._at("write")
        assert offset == len(inode.data), f"{self._path.name}: written at {offset} of {len(inode.data)}"
        room = max(self._disk.capacity - self._disk.used(), 0)
        inode.written = offset
        inode.data += data[:room]
        if room < len(data):
            raise FakeDisk.error(errno.ENOSPC)

    def truncate(self, size: int) -> None:
        """See the port."""
        inode = self._at("truncate")
        inode.longest = max(inode.longest, bytes(inode.data), key=len)
        del inode.data[size:]

    def sync(self) -> None:
        """See the port."""
        inode = self._at("sync")
        inode.synced, inode.longest = bytes(inode.data), b""

    def size(self) -> int:
        """See the port."""
        return len(self._at("size").data)

    def close(self) -> None:
        """See the port; the power may be gone."""
        self._inode = None
        self._on_close()
