"""What an ensemble's writer writes to and its publisher tails: the folder of a RocksDB, or a private server that can
be killed too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from datastores.postgres.log import slots
from tests.support.databases import start_server
from tests.support.fault_proxy import FaultProxy
from tests.support.postgres_server import PostgresServer, small_segments, template
from tests.system.harness.logs import Assigned, Entry, Marker, Received
from tests.system.harness.postgres_store import PREPARED, SCHEMA
from tests.system.harness.truth import Commit


class Datastore(ABC):
    """``step``: see `tests.system.harness.truth.Commit`."""

    step: int

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What tells the writer where it is."""

    @abstractmethod
    def source(self) -> str:
        """The TOML lines that tell the publisher."""

    def count(self, entries: Sequence[Entry], commits: Sequence[Commit]) -> None:  # noqa: B027 - the usual case
        """Give the entries the store's numbers, where the log has others. ``commits``: all that are certain."""

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

    server: Any

    def __init__(self, flavour: str) -> None:
        self._flavour = flavour

    def start(self) -> None:
        self.server = start_server(self._flavour)
        self._stand_between()

    def _stand_between(self) -> None:
        self.proxy = FaultProxy(self.server.host, self.server.port)
        self.proxy.__enter__()

    def close(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.__exit__(None, None, None)
            self.server.close()

    def at(self, copy: str) -> Any:
        """The server that ``copy`` of the dataset is."""
        return self.server

    def kill(self) -> None:
        """``kill -9`` of the server."""
        self.server.kill()

    def back(self) -> None:
        """Start it again, on what it left."""
        self.server.start()

    def settings(self) -> dict[str, Any]:
        return {"port": self.server.port}

    def source(self) -> str:
        return self.source_at(self.proxy.port)

    def source_at(self, port: int) -> str:
        """The TOML lines that name the server, reached at ``port``."""
        server = self.server
        url = server.url.replace(f":{server.port}/", f":{port}/")
        return f'source = "{url}"\npassword_file = "{server.password_file}"'


class Postgres(Server):
    """A PostgreSQL server whose database has publication and slots. ``small``: files of 1 MiB in its log."""

    def __init__(self, *, small: bool = False, **options: str) -> None:
        super().__init__("postgres")
        self._options = options
        self._small = small
        self._commits: dict[int, int] = {}  # commits of received transactions, by their place in the journal

    def start(self) -> None:
        self.server = PostgresServer(options=self._options, template=template())
        self.server.start()
        if self._small:
            small_segments(self.server)
        prepare(self.server)
        self._stand_between()

    def settings(self) -> dict[str, Any]:
        return {"port": self.server.port, "database": DATABASE}

    def source_at(self, port: int) -> str:
        return source_lines(self.server, port)

    def count(self, entries: Sequence[Entry], commits: Sequence[Commit]) -> None:
        begins = [commit.where[0] for commit in commits]
        for entry in entries:
            if isinstance(entry, Received):
                at = bisect_right(begins, entry.sequence) - 1
                if at >= 0 and entry.sequence < commits[at].where[1]:
                    self._commits[at] = entry.sequence
                    entry.sequence = commits[at].sequence
        for entry in entries:
            if isinstance(entry, (Marker, Assigned)):
                at = bisect_left(begins, entry.delivered) - 1
                # Something else may have been logged between a commit and the place that was noted behind it.
                if at >= 0 and entry.delivered <= self._commits.get(at, commits[at].where[1] - 1):
                    at -= 1
                entry.delivered = commits[at].sequence if at >= 0 else 0


DATABASE: Final = "shop"
NAME: Final = "wormhole_db1"
"""The publication's name; the names of the slots begin with it."""


def prepare(server: PostgresServer) -> None:
    """Make the database, its publication and its slots."""
    server.sql(f"CREATE DATABASE {DATABASE}")
    server.sql(
        *PREPARED, f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA {SCHEMA}", *slots.create_statements(NAME),
        database=DATABASE,
    )  # fmt: skip


def source_lines(server: PostgresServer, port: int) -> str:
    """The TOML lines that name the database, reached at ``port``."""
    url = server.url(DATABASE).replace(f":{server.port}/", f":{port}/")
    return f'source = "{url}"\npassword_file = "{server.password_file}"'


def datastore(kind: str, folder: Path) -> Datastore:
    """``rocksdb``, ``mariadb``, ``mysql``, ``postgres``, or ``small postgres``: one that keeps no more log than it
    must, and writes down who reads it.
    """
    if kind == "small postgres":
        return Postgres(small=True, log_replication_commands="on")
    if kind == "postgres":
        return Postgres()
    return Rocks(folder) if kind == "rocksdb" else Server(kind)
