"""A database that is copied, put back, moved, doubled and damaged as a whole; the writer is the test itself."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

import psycopg

from datastores.postgres.log import slots
from tests.support import postgres_server
from tests.support.databases import FLAVOURS, template
from tests.support.postgres_harness import drop_slots
from tests.system.harness import datastores
from tests.system.harness.postgres_store import PostgresStore
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


class _Served(CopiedStore):
    """A database whose server is a process."""

    server: Any

    @property
    def folder(self) -> Path:
        data: Path = self.server.data
        return data

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.leave()
        self.server.stop()

    def close(self) -> None:
        self.leave()
        self.server.close()

    def moved(self) -> None:
        self.stop()
        self.server.port = 0  # another one is chosen
        self.start()


class _Server(_Served):
    def __init__(self, flavour: str, scratch: Path) -> None:
        super().__init__(scratch)
        self._flavour = flavour
        self.server = FLAVOURS[flavour](template=template(flavour))

    def source(self) -> str:
        return f'source = "{self.server.url}"\npassword_file = "{self.server.password_file}"'

    def opened(self, journal: Path) -> Store:
        return ServerStore(self.server.port, journal, ())

    def logs(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("binlog.*") if path.suffix != ".index")

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


class Postgres(_Served):
    """Its numbers are places of the log: one right before a commit."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.server = postgres_server.PostgresServer(template=postgres_server.template())

    def start(self) -> None:
        super().start()
        if not self.server.sql(f"SELECT 1 FROM pg_database WHERE datname = '{datastores.DATABASE}'"):
            datastores.prepare(self.server)

    def source(self) -> str:
        return datastores.source_lines(self.server, self.server.port)

    def opened(self, journal: Path) -> Store:
        return PostgresStore(self.server.port, datastores.DATABASE, journal, ())

    def commit(self, number: int) -> int:
        super().commit(number)
        assert self._store is not None
        return self._store.where[0]

    def logs(self) -> list[Path]:
        return sorted(path for path in (self.folder / "pg_wal").iterdir() if path.is_file())

    def put_back(self, copy: Path) -> None:
        self.stop()
        self._take(self.server, copy)
        self.start()

    def clone(self) -> CopiedStore:
        self.stop()
        twin = Postgres(self._scratch)
        twin.server.start()  # once, for its folder
        twin.server.stop()
        self._take(twin.server, self.folder)
        return twin

    def wiped(self) -> None:
        self.put_back(postgres_server.template())

    def make_slots_anew(self) -> None:
        """Drop them and make them: the log from before is not sent any more."""
        drop_slots(self.server)
        self.server.sql(*slots.create_statements(datastores.NAME), database=datastores.DATABASE)

    def advance_slots(self) -> None:
        """Move them on to the end of the log."""
        for name in (slots.held_slot(datastores.NAME), slots.lead_slot(datastores.NAME)):
            self.server.sql(
                f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())", database=datastores.DATABASE
            )

    def held(self) -> int:
        """Up to where the server may remove its log."""
        slot = f"slot_name = '{slots.held_slot(datastores.NAME)}'"
        found = self.server.sql(f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE {slot}")
        return int(found[0][0])

    def grow(self) -> None:
        """Let the log be a file of it longer, of which no row is delivered."""
        self.server.sql("SELECT pg_logical_emit_message(false, 'test', 'x')", "SELECT pg_switch_wal()")

    def read_slot(self) -> psycopg.Connection[Any]:
        """A session that reads the slot which is kept for the publisher."""
        reader: psycopg.Connection[Any] = self.server.connect(datastores.DATABASE, replication="database")
        held = slots.held_slot(datastores.NAME)
        options = f"proto_version '1', publication_names '{datastores.NAME}'"
        reader.pgconn.send_query(f"START_REPLICATION SLOT {held} LOGICAL 0/0 ({options})".encode())
        return reader

    @staticmethod
    def _take(server: postgres_server.PostgresServer, copy: Path) -> None:
        shutil.rmtree(server.data)
        shutil.copytree(copy, server.data)
        server.own_data()


def copied_store(kind: str, scratch: Path) -> CopiedStore:
    """``mariadb``, ``mysql``, ``postgres`` or ``rocksdb``."""
    if kind == "postgres":
        return Postgres(scratch)
    return _Rocks(scratch) if kind == "rocksdb" else _Server(kind, scratch)
