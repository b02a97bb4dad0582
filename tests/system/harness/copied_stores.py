"""A database that is copied, put back, moved, doubled and damaged as a whole; the writer is the test itself."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from tests.support.databases import FLAVOURS, DatabaseServer, template
from tests.system.harness.rocks_store import RocksStore
from tests.system.harness.server_store import ServerStore
from tests.system.harness.store import Store

_KEY: Final = "k{:07d}"


class CopiedStore(ABC):
    """``folder``: of the database just now."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._store: Store | None = None
        self._journals = 0

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where its data is."""

    @abstractmethod
    def start(self) -> None:
        """Start it, if it is a process."""

    @abstractmethod
    def stop(self) -> None:
        """End whatever has it open."""

    @abstractmethod
    def close(self) -> None:
        """End it for good."""

    @abstractmethod
    def source(self) -> str:
        """The TOML lines that name it."""

    @abstractmethod
    def opened(self, journal: Path) -> Store:
        """Open the store."""

    @abstractmethod
    def logs(self) -> list[Path]:
        """The files of its log, oldest first."""

    @abstractmethod
    def moved(self) -> None:
        """The same data at another address; started again."""

    @abstractmethod
    def clone(self) -> CopiedStore:
        """A second one with a copy of the data, at another address, not started; this one is stopped."""

    @abstractmethod
    def wiped(self) -> None:
        """A new, empty one at the same address; started."""

    def commit(self, number: int) -> int:
        """One row under a key of its own. Returns the number that the log gives the transaction."""
        if self._store is None:
            self._journals += 1
            self._store = self.opened(self._scratch / f"journal-{id(self)}-{self._journals}")
        self._store.commit([("default", _KEY.format(number).encode(), b"%d" % number)])
        return self._store.sequence

    def leave(self) -> None:
        """Close the writer's connection."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def copy_to(self, target: Path) -> None:
        """A copy of the data, taken while nothing has it open; started again."""
        self.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        self.start()

    def put_back(self, copy: Path) -> None:
        """The copy takes the place of the data; started again."""
        self.stop()
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)
        self.start()


class _Rocks(CopiedStore):
    def __init__(self, scratch: Path, name: str = "store") -> None:
        super().__init__(scratch)
        self._path = scratch / name

    @property
    def folder(self) -> Path:
        return self._path

    def start(self) -> None:
        if self._store is None:
            self._journals += 1
            self._store = self.opened(self._scratch / f"journal-{id(self)}-{self._journals}")

    def stop(self) -> None:
        self.leave()

    def close(self) -> None:
        self.leave()

    def source(self) -> str:
        return f'source = "rocksdb://{self._path}"'

    def opened(self, journal: Path) -> Store:
        return RocksStore(self._path, journal, ())

    def logs(self) -> list[Path]:
        return sorted(self._path.glob("*.log"))

    def moved(self) -> None:
        self.stop()
        self._path = self._path.rename(self._path.with_name(f"{self._path.name}-moved"))
        self.start()

    def clone(self) -> CopiedStore:
        self.stop()
        twin = _Rocks(self._scratch, f"{self._path.name}-twin")
        shutil.copytree(self._path, twin.folder)
        return twin

    def wiped(self) -> None:
        self.stop()
        shutil.rmtree(self._path)
        self.start()


class _Server(CopiedStore):
    def __init__(self, flavour: str, scratch: Path) -> None:
        super().__init__(scratch)
        self._flavour = flavour
        self.server = self._new()

    def _new(self) -> DatabaseServer:
        return FLAVOURS[self._flavour](template=template(self._flavour))

    @property
    def folder(self) -> Path:
        return self.server.data

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.leave()
        self.server.stop()

    def close(self) -> None:
        self.leave()
        self.server.close()

    def source(self) -> str:
        return f'source = "{self.server.url}"\npassword_file = "{self.server.password_file}"'

    def opened(self, journal: Path) -> Store:
        return ServerStore(self.server.port, journal, ())

    def logs(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("binlog.*") if path.suffix != ".index")

    def moved(self) -> None:
        self.stop()
        self.server.port = 0  # another one is chosen
        self.start()

    def clone(self) -> CopiedStore:
        self.stop()
        twin = _Server(self._flavour, self._scratch)
        # Started once for its folder, which is then the original's data in every byte: its identity too.
        twin.server.start()
        twin.server.stop()
        shutil.rmtree(twin.folder)
        shutil.copytree(self.folder, twin.folder)
        return twin

    def wiped(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
        shutil.copytree(template(self._flavour), self.folder)
        self.start()


def copied_store(kind: str, scratch: Path) -> CopiedStore:
    """``mariadb``, ``mysql`` or ``rocksdb``."""
    return _Rocks(scratch) if kind == "rocksdb" else _Server(kind, scratch)
