"""Each implementation of the log source port with the datastore behind it, in one form for the contract suite."""

from __future__ import annotations

import json
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pymysql.err import OperationalError

from publisher.sources import open_source
from publisher.sources.memory.source import MemorySource
from tests.support.databases import DatabaseServer, purge, start_server
from tests.support.rocks_writer import RocksWriter
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding, shard_of_table
from wormhole.model.values import Op
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource

sys.path.append(str(Path(__file__).parents[2] / "examples" / "jsonlines_source"))  # a package of its own
from wormhole_jsonlines.source import JsonLinesSource

__all__ = ["Change", "DatabaseHarness", "Harness", "MemoryHarness", "RocksHarness", "make_harness"]

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

    def table(self, name: str) -> str:
        """The table as updates name it."""
        return name

    def shard(self, table: str) -> str:
        """The shard of a table where each is one."""
        return shard_of_table("log", table)

    def hash_key(self, key: bytes) -> bytes:
        """The bytes of a key that the hash runs over."""
        return key

    def after(self, *columns: bytes) -> tuple[bytes, ...]:
        """The values of a row after a put: key and value, where the key is among them."""
        return columns[1:]

    @property
    def put(self) -> str:
        """The operation of a put of a new key."""
        return "upsert"

    def after_delivered(self, marker: Datamarker) -> str:
        """The text with which :meth:`LogSource.locate` finds a marker by its logical position."""
        return f"seq:{marker.delivered}"

    def first_missing(self, marker: Datamarker) -> str:
        """How the first logical position after the marker is written in a data loss."""
        return str(int(marker.delivered) + 1)

    bounded_by_bytes = True
    """Whether the log is kept up to a number of bytes."""


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


class JsonLinesHarness(Harness):
    """The example of docs/write-a-source.md, with the file written here."""

    bounded_by_bytes = False

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self.path = folder / "log.jsonl"
        self.saved = b""
        self.sharding = sharding
        self.number, self.seq = 1, 0
        self._begin()
        self._open()

    def _begin(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"file": self.number, "before": self.seq}) + "\n")
        fresh.replace(self.path)

    def _open(self) -> None:
        self.source = JsonLinesSource(self.path, "log", self.sharding)
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.seq += 1
        texts = [[part if isinstance(part, str) else part.decode() for part in change] for change in changes]
        line = {"seq": self.seq, "at_us": time.time_ns() // 1000, "changes": texts}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def rotate(self) -> None:
        pass  # one file goes on until its writer forgets its lines

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.number += 1
        self._begin()
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        self.saved = self.path.read_bytes()

    def lose_tail(self, to: Datamarker) -> None:
        self.path.write_bytes(self.saved)
        self.seq = int(to.delivered)
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


class DatabaseHarness(Harness):
    """A MariaDB or MySQL server that nobody else uses meanwhile.

    The log begins anew: nothing of the one before is there."""

    bounded_by_bytes = False

    def __init__(self, server: DatabaseServer, folder: Path, sharding: Sharding) -> None:
        self.state = folder / "state"
        self.saved = folder / "saved"
        self.sharding = sharding
        self.server = server
        self.server.start()  # a test that failed may have stopped it
        for (number,) in server.sql(f"SELECT id FROM information_schema.processlist WHERE user = '{server.user}'"):
            with suppress(OperationalError):  # a reader of the test before, which may go by itself this moment
                server.sql(f"KILL {number}")
        self.server.sql(
            "DROP DATABASE IF EXISTS shop",
            "RESET MASTER" if server.flavour == "mariadb" else "RESET BINARY LOGS AND GTIDS",
            "CREATE DATABASE shop",
            *(f"CREATE TABLE shop.{name} (k VARBINARY(64) PRIMARY KEY, v LONGBLOB NOT NULL)" for name in "ab"),
        )
        self.writer = self.server.connect(autocommit=False)
        self._open()

    def _open(self) -> None:
        self.source = open_source(
            self.server.url,
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            login=Login(self.server.password_file),
        )
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        with self.writer.cursor() as cursor:
            for change in changes:
                if len(change) == 4:
                    cursor.execute(
                        f"INSERT INTO shop.{change[1]} VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = "
                        "CONCAT(VALUES(v), '')",
                        (change[2], change[3]),
                    )
                else:
                    cursor.execute(f"DELETE FROM shop.{change[1]} WHERE k = %s", (change[2],))
        self.writer.commit()

    def rotate(self) -> None:
        self.server.sql("FLUSH BINARY LOGS")

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.rotate()
        purge(self.server)
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        self._stop()
        shutil.copytree(self.server.data, self.saved)
        self._start()

    def lose_tail(self, to: Datamarker) -> None:
        self._stop()
        self.source.stop()
        shutil.rmtree(self.server.data)
        shutil.copytree(self.saved, self.server.data)
        self._start()
        self.commit([("put", "a", b"another history", b"1")])
        self._open()

    def _stop(self) -> None:
        self.writer.close()
        self.server.stop()

    def _start(self) -> None:
        self.server.start()
        self.writer = self.server.connect(autocommit=False)

    def close(self) -> None:
        self.source.stop()
        self.writer.close()

    def table(self, name: str) -> str:
        return f"shop.{name}"

    def shard(self, table: str) -> str:
        return f"log.{table}"

    def hash_key(self, key: bytes) -> bytes:
        return key

    def after(self, *columns: bytes) -> tuple[bytes, ...]:
        return columns

    @property
    def put(self) -> str:
        return "insert"

    def after_delivered(self, marker: Datamarker) -> str:
        return marker.delivered

    def first_missing(self, marker: Datamarker) -> str:
        head, _, last = marker.delivered.replace(":1-", "-").rpartition("-")
        return f"{head}{':' if len(head) > 20 else '-'}{int(last) + 1}"


def make_harness(kind: str, folder: Path, sharding: Sharding, servers: dict[str, DatabaseServer]) -> Harness:
    """``memory``, ``rocksdb``, ``mariadb`` or ``mysql``.

    ``servers``: those of the last two that run; one that lacks is started there."""
    if kind == "memory":
        return MemoryHarness(sharding)
    if kind == "jsonlines":
        return JsonLinesHarness(folder, sharding)
    if kind == "rocksdb":
        return RocksHarness(folder, sharding)
    if kind not in servers:
        servers[kind] = start_server(kind)
    return DatabaseHarness(servers[kind], folder, sharding)
