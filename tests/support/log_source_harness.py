"""Each implementation of the log source port with the datastore behind it, in one form for the contract suite."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from publisher.source import open_source
from publisher.source.memory import MemorySource
from tests.support.rocks_writer import RocksWriter
from wormhole.log_source import LogSource
from wormhole.position import Datamarker
from wormhole.sharding import Sharding
from wormhole.values import Op

__all__ = ["Change", "Harness", "MemoryHarness", "RocksHarness", "make_harness"]

Change = tuple[Literal["put", "delete"], str, bytes, bytes] | tuple[Literal["delete"], str, bytes]


class Harness(ABC):
    """A datastore with tables ``a`` and ``b``, and its source, started."""

    source: LogSource

    @abstractmethod
    def commit(self, changes: Sequence[Change]) -> None:
        """One transaction."""

    @abstractmethod
    def rotate(self) -> None:
        """Let the log go on in another file."""

    @abstractmethod
    def restart(self) -> None:
        """Stop the publisher's side and start it anew on what it left on disk."""

    @abstractmethod
    def purge(self) -> None:
        """Let the log forget what it holds; something is committed after it."""

    @abstractmethod
    def lose_tail(self, to: Datamarker) -> None:
        """Put the datastore back to ``to``, a place where :meth:`save` was called, and commit something else there."""

    @abstractmethod
    def save(self) -> None:
        """Remember the datastore's state for :meth:`lose_tail`."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""


class MemoryHarness(Harness):
    """The memory source is its own datastore."""

    def __init__(self, sharding: Sharding) -> None:
        self.memory = MemorySource("log", sharding)
        self.source = self.memory
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.memory.commit(
            [
                (Op.UPSERT, change[1], change[2], {"value": change[3]})
                if len(change) == 4
                else (Op.DELETE, change[1], change[2])
                for change in changes
            ]
        )

    def rotate(self) -> None:
        self.memory.rotate()

    def restart(self) -> None:
        self.source.stop()
        self.source.start()

    def purge(self) -> None:
        self.memory.purge()
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        pass  # it goes back to any place

    def lose_tail(self, to: Datamarker) -> None:
        self.memory.restore(to)
        self.commit([("put", "a", b"another history", b"1")])

    def close(self) -> None:
        self.source.stop()


class RocksHarness(Harness):
    """A database with default options, written by another process."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self.path = folder / "store"
        self.state = folder / "state"
        self.saved = folder / "saved"
        self.sharding = sharding
        self.budget = 1 << 30
        self.writer = RocksWriter(self.path)
        self.writer.create_family("a")
        self.writer.create_family("b")
        self._open()

    def _open(self) -> None:
        self.source = open_source(
            f"rocksdb://{self.path}",
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            disk_budget=self.budget,
        )
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.writer.write(changes)

    def rotate(self) -> None:
        self.writer.flush()

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.source.stop()
        self.budget = 0
        self._open()
        for _ in range(2):  # the newest kept file is never dropped
            self.writer.flush()
            self.commit([("put", "a", b"after the purge", b"")])
        self.restart()

    def save(self) -> None:
        self.writer.exit()
        shutil.copytree(self.path, self.saved)
        self.writer = RocksWriter(self.path)

    def lose_tail(self, to: Datamarker) -> None:
        self.writer.exit()
        self.source.stop()
        shutil.rmtree(self.path)
        shutil.copytree(self.saved, self.path)
        self.writer = RocksWriter(self.path)
        self.commit([("put", "a", b"another history", b"1")])
        self._open()

    def close(self) -> None:
        self.source.stop()
        self.writer.exit()


def make_harness(kind: str, folder: Path, sharding: Sharding) -> Harness:
    """``memory`` or ``rocksdb``."""
    return MemoryHarness(sharding) if kind == "memory" else RocksHarness(folder, sharding)
