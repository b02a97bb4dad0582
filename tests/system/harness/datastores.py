"""What an ensemble's writer writes to and its publisher tails: the folder of a RocksDB, or a private server that can
be killed too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.support.databases import start_server
from tests.support.fault_proxy import FaultProxy


class Datastore(ABC):
    """``step``: see `tests.system.harness.truth.Commit`."""

    step: int

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What tells the writer where it is."""

    @abstractmethod
    def source(self) -> str:
        """The TOML lines that tell the publisher."""

    @abstractmethod
    def start(self) -> None:
        """Start whatever runs beside the writer."""

    @abstractmethod
    def close(self) -> None:
        """End it."""


class Rocks(Datastore):
    """The writer's process owns it."""

    step = 1

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def settings(self) -> dict[str, Any]:
        return {"path": str(self.path)}

    def source(self) -> str:
        return f'source = "rocksdb://{self.path}"'


class Server(Datastore):
    """A server of the test's own. ``proxy`` stands between it and the publisher, and behaves unless told otherwise."""

    step = 0

    def __init__(self, flavour: str) -> None:
        self._flavour = flavour

    def start(self) -> None:
        self.server = start_server(self._flavour)
        self.proxy = FaultProxy(self.server.host, self.server.port)
        self.proxy.__enter__()

    def close(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.__exit__(None, None, None)
            self.server.close()

    def kill(self) -> None:
        """``kill -9`` of the server."""
        self.server.kill()

    def back(self) -> None:
        """Start it again, on what it left."""
        self.server.start()

    def settings(self) -> dict[str, Any]:
        return {"port": self.server.port}

    def source(self) -> str:
        server = self.server
        url = server.url.replace(f":{server.port}/", f":{self.proxy.port}/")
        return f'source = "{url}"\npassword_file = "{server.password_file}"'


def datastore(kind: str, folder: Path) -> Datastore:
    """``rocksdb``, ``mariadb`` or ``mysql``."""
    return Rocks(folder) if kind == "rocksdb" else Server(kind)
