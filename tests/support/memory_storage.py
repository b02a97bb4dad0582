"""A storage in memory, for archives of hundreds of thousands of files that need not be there, and for faults between
any two of its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyarrow import fs

from spark_replay.archive.layout import ABOUT, About, about_to_json
from spark_replay.archive.storage import Storage, Stored
from spark_replay.archive.store import ArchiveStore


class MemoryStorage(Storage):
    """Small files only, and the names of large ones. ``step`` is called before and after everything that writes, with
    what is done; what it raises ends the writer there."""

    def __init__(self) -> None:
        super().__init__(fs.LocalFileSystem(), "/memory")
        self.content: dict[str, dict[str, Stored]] = {}
        self.data: dict[str, bytes] = {}
        self.step: Callable[[str], object] = lambda _: None
        self.written = self.got = 0
        self._lock = threading.Lock()

    def saved(self) -> tuple[dict[str, dict[str, Stored]], dict[str, bytes]]:
        """All that there is, for `restore`."""
        return {folder: dict(files) for folder, files in self.content.items()}, dict(self.data)

    def restore(self, saved: tuple[dict[str, dict[str, Stored]], dict[str, bytes]]) -> None:
        """As it was then."""
        content, data = saved
        self.content, self.data = {folder: dict(files) for folder, files in content.items()}, dict(data)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """One of several gets it."""
        self.step(f"before {name}")
        with self._lock:
            if name in self.data:
                return False
            self._put(name, data)
        self.step(f"after {name}")
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Whatever was there."""
        self.step(f"before {name}")
        with self._lock:
            self._put(name, data)
        self.step(f"after {name}")

    def _put(self, name: str, data: bytes) -> None:
        self.written += len(data)
        self.data[name] = data
        self.lay(name, len(data))

    def lay(self, name: str, size: int, modified_s: int = 0) -> None:
        """A file of which only name and size are known."""
        folder, _, base = name.rpartition("/")
        self.content.setdefault(folder, {})[base] = Stored(base, size, modified_s)

    def read(self, name: str) -> bytes | None:
        """The file."""
        found = self.data.get(name)
        self.got += len(found or b"")
        return found

    def files(self, folder: str) -> list[Stored]:
        """By name."""
        with self._lock:
            return sorted(self.content.get(folder, {}).values(), key=lambda one: one.name)

    def folders(self) -> list[str]:
        """Those in the root."""
        with self._lock:
            return sorted({folder.partition("/")[0] for folder in self.content if folder})

    def delete(self, name: str) -> None:
        """If it is there."""
        self.step(f"before {name} goes")
        folder, _, base = name.rpartition("/")
        with self._lock:
            self.data.pop(name, None)
            self.content.get(folder, {}).pop(base, None)


def memory_store() -> tuple[ArchiveStore, MemoryStorage]:
    """An archive with nothing in it."""
    storage, about = MemoryStorage(), About("orders", "main", 0)
    storage.create_if_absent(ABOUT, about_to_json(about))
    return ArchiveStore(storage, "memory", about), storage
