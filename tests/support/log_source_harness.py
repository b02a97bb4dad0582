"""The harnesses of this repository's sources, for :mod:`wormhole.ports.testing.contract`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pymysql.err import OperationalError

from datastores.memory.source import MemorySource
from publisher.sources import open_source
from tests.support.databases import DatabaseServer, begin_log, purge
from tests.support.eventually import until
from tests.support.rocks_writer import RocksWriter
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.datastore import Login
from wormhole.ports.testing.contract import Change, Harness


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
        pass  # it goes back to any position

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
        # RocksDB deletes the flushed file. On a busy machine it would be gone before the source's thread kept it.
        until(self._is_kept, "the source keeps no link to the file that is written")
        self.writer.flush()

    def _is_kept(self) -> bool:
        try:
            return all(log.stat().st_nlink > 1 for log in self.path.glob("*.log"))
        except FileNotFoundError:  # RocksDB deletes the one before a moment after its flush was answered
            return False

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
    """A MariaDB or MySQL server that nothing else uses meanwhile. Its log begins anew."""

    bounded_by_bytes = False
    put = "insert"

    def __init__(self, server: DatabaseServer, folder: Path, sharding: Sharding) -> None:
        self.state = folder / "state"
        self.saved = folder / "saved"
        self.sharding = sharding
        self.server = server
        self.server.start()  # a test that failed may have stopped it
        for (number,) in server.sql(f"SELECT id FROM information_schema.processlist WHERE user = '{server.user}'"):
            with suppress(OperationalError):  # a reader of the test before, which may go by itself this moment
                server.sql(f"KILL {number}")
        self.server.sql("DROP DATABASE IF EXISTS shop")
        begin_log(server)
        self.server.sql(
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
        self.writer.close()
        self.server.stop()
        shutil.copytree(self.server.data, self.saved)
        self._start()

    def lose_tail(self, to: Datamarker) -> None:
        self.writer.close()
        self.server.kill()  # what it has not written is thrown away
        self.source.stop()
        shutil.rmtree(self.server.data)
        shutil.move(self.saved, self.server.data)
        self._start()
        self.commit([("put", "a", b"another history", b"1")])
        self._open()

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

    def after(self, key: bytes, value: bytes) -> tuple[bytes, ...]:
        return key, value

    def after_delivered(self, marker: Datamarker) -> str:
        return marker.delivered

    def first_missing(self, marker: Datamarker) -> str:
        head, _, last = marker.delivered.replace(":1-", "-").rpartition("-")
        return f"{head}{':' if len(head) > 20 else '-'}{int(last) + 1}"
