"""The harness of an SQLite database that another connection writes, for :mod:`wormhole.ports.testing`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from datastores.sqlite.datastore import DATASTORE
from datastores.sqlite.existing_rows import SqliteTables
from datastores.sqlite.url import address_of
from publisher.sources import open_source
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.testing.contract import Change, Harness
from wormhole.ports.testing.table_contract import TableHarness

__all__ = ["SqliteHarness", "SqliteTablesHarness", "install"]


def install(path: Path, tables: Sequence[str] = ("*",), options: str = "") -> None:
    """What ``wormholectl capture install`` does."""
    url = f"sqlite://{path}{options}"
    DATASTORE.run_statements(url, Login(), DATASTORE.server_objects(url, Login(), tables).missing)


class SqliteHarness(Harness):
    """A database in WAL mode. Each commit is taken as a transaction, for the source looks after it."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self.path = folder / "shop.db"
        self.state = folder / "state"
        self.saved = folder / "saved.db"
        self.sharding = sharding
        self.budget = 1 << 30
        self.writer = self._connect()
        self.writer.execute("PRAGMA journal_mode = WAL")
        for name in "ab":
            self.writer.execute(f"CREATE TABLE {name} (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL)")
        install(self.path)
        self._open()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power
        return connection

    def _open(self) -> None:
        self.source = open_source(
            f"sqlite://{self.path}",
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            disk_budget=self.budget,
        )
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.writer.execute("BEGIN IMMEDIATE")
        for change in changes:
            if len(change) == 4:
                self.writer.execute(f"INSERT OR REPLACE INTO {change[1]} VALUES (?, ?)", (change[2], change[3]))
            else:
                self.writer.execute(f"DELETE FROM {change[1]} WHERE k = ?", (change[2],))
        self.writer.execute("COMMIT")
        self.source.latest()

    def rotate(self) -> None:
        pass  # the log is one file

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.source.stop()
        self.budget = 0
        self._open()
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        with sqlite3.connect(self.saved) as saved:
            self.writer.backup(saved)
        saved.close()

    def lose_tail(self, to: Datamarker) -> None:
        self.writer.close()
        self.source.stop()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self.saved, self.path)
        self.writer = self._connect()
        self.writer.execute("INSERT OR REPLACE INTO a VALUES (?, ?)", (b"another history", b"1"))
        self._open()

    def close(self) -> None:
        self.source.stop()
        self.writer.close()

    def after(self, key: bytes, value: bytes) -> tuple[bytes, ...]:
        return key, value


class SqliteTablesHarness(SqliteHarness, TableHarness):
    """The tables of the database."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        super().__init__(folder, sharding)
        self.tables = self._tables()

    def _tables(self) -> SqliteTables:
        options = SourceOptions("log", self.state, self.sharding, 1 << 26, 0)
        return SqliteTables(address_of(f"sqlite://{self.path}"), options)

    def reopen_tables(self) -> None:
        self.tables.close()
        self.tables = self._tables()

    def drop(self, name: str) -> None:
        self.writer.execute(f"DROP TABLE {name}")

    def close(self) -> None:
        self.tables.close()
        super().close()
