"""The harnesses of this repository's tables, for :mod:`wormhole.ports.testing.table_contract`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from datastores.memory.tables import MemoryTables
from datastores.mysql.existing_rows.source import MySqlTables
from datastores.postgres.capture.existing_rows import CaptureTables
from datastores.postgres.existing_rows.source import PostgresTables
from datastores.postgres.server.lsn import format_delivered
from datastores.rocksdb.existing_rows.source import RocksTables
from examples.demo.database_server import DatabaseServer
from tests.support.capture_harness import DATABASE as CAPTURED
from tests.support.capture_harness import CaptureHarness, capture_url, options_of
from tests.support.log_source_harness import DatabaseHarness, MemoryHarness, RocksHarness
from tests.support.postgres_harness import DATABASE, PostgresHarness
from tests.support.postgres_server import PostgresServer
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.testing.table_contract import TableHarness

__all__ = [
    "CaptureTablesHarness",
    "DatabaseTablesHarness",
    "MemoryTablesHarness",
    "PostgresTablesHarness",
    "RocksTablesHarness",
]


class MemoryTablesHarness(MemoryHarness, TableHarness):
    """The tables of a memory log."""

    def __init__(self, sharding: Sharding) -> None:
        super().__init__(sharding)
        self.memory_tables = self.tables = MemoryTables(self.memory)

    def reopen_tables(self) -> None:
        self.tables.close()  # they are the datastore too

    def drop(self, name: str) -> None:
        self.memory_tables.drop(name)


class RocksTablesHarness(RocksHarness, TableHarness):
    """The column families of a database that another process writes."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        super().__init__(folder, sharding)
        self.tables = self._tables()

    def _tables(self) -> RocksTables:
        return RocksTables(
            self.path,
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            max_update_bytes=1 << 26,
        )

    def reopen_tables(self) -> None:
        self.tables.close()
        self.tables = self._tables()

    def drop(self, name: str) -> None:
        self.writer.drop_family(name)

    def close(self) -> None:
        self.tables.close()
        super().close()


class DatabaseTablesHarness(DatabaseHarness, TableHarness):
    """The tables of a MariaDB or MySQL server."""

    def __init__(self, server: DatabaseServer, folder: Path, sharding: Sharding) -> None:
        super().__init__(server, folder, sharding)
        self.tables = self._tables()

    def _tables(self) -> MySqlTables:
        login = Login(self.server.password_file)
        return MySqlTables(self.server.url, SourceOptions("log", self.state, self.sharding, 1 << 26, 0, login))

    def reopen_tables(self) -> None:
        self.tables.close()
        self.tables = self._tables()

    def drop(self, name: str) -> None:
        self.server.sql(f"DROP TABLE shop.{name}")

    def ahead(self, marker: Datamarker) -> Datamarker:
        order = marker.order
        delivered = marker.delivered
        if self.server.flavour == "mysql":
            delivered = f"{self.server.sql('SELECT @@GLOBAL.server_uuid')[0][0]}:1-1000000"
        return replace(marker, order=LogPosition(order.incarnation, order.file + 1, 4), delivered=delivered)

    def close(self) -> None:
        self.tables.close()
        super().close()


class PostgresTablesHarness(PostgresHarness, TableHarness):
    """The tables of a PostgreSQL server."""

    def __init__(self, server: PostgresServer, folder: Path, sharding: Sharding) -> None:
        super().__init__(server, folder, sharding)
        self.tables = self._tables()

    def _tables(self) -> PostgresTables:
        """The tables that the source's log has."""
        login = Login(self.server.password_file)
        options = SourceOptions("log", self.state, self.sharding, 1 << 26, 0, login)
        return PostgresTables(self.server.url(DATABASE), options)

    def reopen_tables(self) -> None:
        self.tables.close()
        self.tables = self._tables()

    def drop(self, name: str) -> None:
        self.server.sql(f"DROP TABLE shop.{name}", database=DATABASE)

    def ahead(self, marker: Datamarker) -> Datamarker:
        order = replace(marker.order, offset=marker.order.offset + (1 << 30))
        return replace(marker, order=order, delivered=format_delivered(1, order.offset))

    def close(self) -> None:
        self.tables.close()
        super().close()


class CaptureTablesHarness(CaptureHarness, TableHarness):
    """The tables of a PostgreSQL server whose changes triggers record."""

    def __init__(self, server: PostgresServer, folder: Path, sharding: Sharding) -> None:
        super().__init__(server, folder, sharding)
        self.tables = self._tables()

    def _tables(self) -> CaptureTables:
        return CaptureTables(capture_url(self.server, CAPTURED), options_of(self.server, self.state, self.sharding))

    def reopen_tables(self) -> None:
        self.tables.close()
        self.tables = self._tables()

    def drop(self, name: str) -> None:
        self.server.sql(f"DROP TABLE shop.{name}", database=CAPTURED)

    def close(self) -> None:
        self.tables.close()
        super().close()
