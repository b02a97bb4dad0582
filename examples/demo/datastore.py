"""What the demo needs of a datastore. One module for each kind implements it; no other module knows the kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Final, cast

from examples.demo.workload import Change

__all__ = ["KINDS", "Content", "Datastore", "Store", "open_datastore", "open_store"]

Content = Mapping[tuple[str, str], str]
"""What a store holds: (table, key) to the digest of the value."""

KINDS: Final = {
    "rocksdb": "examples.demo.rocksdb_store",
    "mysql": "examples.demo.mysql_store",
    "postgres": "examples.demo.postgres_store",
}
"""What ``--datastore`` may say, and the module behind it, which is only loaded then: each needs packages of its own."""


class Store(ABC):
    """The writer's side: an open store with the tables of :mod:`.workload`."""

    chores: ClassVar[Mapping[str, Sequence[float]]]
    """What the application does to its store besides writing, and at which parts of the run: each makes tailing harder.
    """

    @abstractmethod
    def commit(self, changes: Sequence[Change]) -> None:
        """One transaction, its changes in this order."""

    @abstractmethod
    def do(self, chore: str) -> str:
        """Do a chore; returns what to tell of it."""

    @abstractmethod
    def close(self) -> None:
        """Close in order."""


class Datastore(ABC):
    """The demo's side, in ``folder``.

    ``remove``: folder that whatever it starts takes along if the demo is killed, or empty.
    """

    def __init__(self, folder: Path, remove: str = "") -> None:
        self.folder = folder
        self.remove = remove

    @abstractmethod
    def start(self) -> None:
        """Start what the writer connects to, if anything.

        Blocks. Raises :class:`~wormhole.model.errors.WormholeError`.
        """

    @abstractmethod
    def close(self) -> None:
        """End it; what it holds stays. Idempotent."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the writer finds it: what :func:`open_store` takes. Known once started."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The lines of the publisher's configuration that name it. Known once started."""

    @property
    @abstractmethod
    def told(self) -> str:
        """What it is, in a few words."""

    @abstractmethod
    def content(self) -> Content:
        """What it holds, after :meth:`close`."""


def open_datastore(kind: str, folder: Path, remove: str = "") -> Datastore:
    """The demo's side of a ``kind`` of :data:`KINDS`."""
    return cast(Callable[[Path, str], Datastore], import_module(KINDS[kind]).DemoDatastore)(folder, remove)


def open_store(kind: str, place: str) -> Store:
    """The writer's side of the same."""
    return cast(Callable[[str], Store], import_module(KINDS[kind]).DemoStore)(place)
