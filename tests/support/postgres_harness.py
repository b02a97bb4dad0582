"""The harness of PostgreSQL's source, for :mod:`wormhole.ports.testing.contract`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg

from datastores.postgres.log import slots
from datastores.postgres.source import PostgresSource
from tests.support.eventually import until
from tests.support.postgres_server import PostgresServer
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.source_state import SourceState
from wormhole.ports.testing.contract import Change, Harness

__all__ = ["DATABASE", "PostgresHarness", "all_tables", "prepare_database", "source_of"]

DATABASE: Final = "contract"


def all_tables(publication: str) -> str:
    """The statement that publishes every table there is and will be."""
    return f"CREATE PUBLICATION {publication} FOR ALL TABLES WITH (publish_via_partition_root = true)"


def prepare_database(server: PostgresServer, database: str, *statements: str, name: str = "wormhole_log") -> None:
    """Run the statements in the database, which loses what other tests left; then make publication and slots."""
    if not server.sql(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
        server.sql(f"CREATE DATABASE {database}")
    drop_slots(server)
    made = (all_tables(name), *slots.create_statements(name))
    server.sql(f"DROP PUBLICATION IF EXISTS {name}", *statements, *made, database=database)


def drop_slots(server: PostgresServer) -> None:
    """Drop every slot of the server, and end its readers."""

    def none_left() -> bool:
        return not server.sql(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
            "SELECT 1 FROM pg_replication_slots",
        )

    until(none_left, "replication slots are left")


def source_of(
    server: PostgresServer,
    database: str,
    state: Path,
    sharding: Sharding | None = None,
    *,
    port: int = 0,
    shared: SourceState | None = None,
) -> PostgresSource:
    """The source named ``log``, started. ``port``: of what lies between it and the server; ``shared``: what it shares
    with those of other hosts."""
    options = SourceOptions(
        log="log",
        state_dir=state,
        sharding=sharding or Sharding("log"),
        max_update_bytes=64 << 20,
        disk_budget=1 << 30,
        login=Login(server.password_file),
        state=shared,
    )
    url = server.url(database)
    source = PostgresSource(url.replace(f":{server.port}/", f":{port}/") if port else url, options)
    source.start()
    return source


class PostgresHarness(Harness):
    """A PostgreSQL server that nothing else uses meanwhile. It loses its slots."""

    bounded_by_bytes = False
    put = "insert"

    def __init__(self, server: PostgresServer, folder: Path, sharding: Sharding) -> None:
        self.server = server
        self.state = folder / "state"
        self.saved = folder / "saved"
        self.sharding = sharding
        server.start()  # a test that failed may have stopped it
        prepare_database(
            server,
            DATABASE,
            "DROP SCHEMA IF EXISTS shop CASCADE",
            "CREATE SCHEMA shop",
            *(f"CREATE TABLE shop.{name} (k bytea PRIMARY KEY, v bytea NOT NULL)" for name in "ab"),
        )
        self._start()
        self._open()

    def _open(self) -> None:
        self.source = source_of(self.server, DATABASE, self.state, self.sharding)

    def commit(self, changes: Sequence[Change]) -> None:
        with self.writer.cursor() as cursor:
            for change in changes:
                if len(change) == 4:
                    cursor.execute(
                        f"INSERT INTO shop.{change[1]} VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                        (change[2], change[3]),
                    )
                else:
                    cursor.execute(f"DELETE FROM shop.{change[1]} WHERE k = %s", (change[2],))
        self.writer.commit()

    def rotate(self) -> None:
        self.server.sql("SELECT pg_switch_wal()")

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        """Somebody moves the slots on."""
        names = (slots.held_slot("wormhole_log"), slots.lead_slot("wormhole_log"))
        self.server.sql(
            *(f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())" for name in names),
            database=DATABASE,
        )
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        self._stop()
        shutil.copytree(self.server.data, self.saved)
        self.server.start()
        self._start()

    def lose_tail(self, to: Datamarker) -> None:
        self._stop()
        self.source.stop()
        shutil.rmtree(self.server.data)
        shutil.move(self.saved, self.server.data)
        self.server.own_data()
        self.server.start()
        self._start()
        self.commit([("put", "a", b"another history", b"1")])
        self._open()

    def _start(self) -> None:
        self.writer: psycopg.Connection[tuple[object, ...]] = self.server.connect(DATABASE, autocommit=False)

    def _stop(self) -> None:
        self.writer.close()
        self.server.stop()

    def close(self) -> None:
        self.source.stop()
        self.writer.close()
        if self.server.alive:
            drop_slots(self.server)  # they keep the catalogue's history, and slots of other tests would begin there

    def table(self, name: str) -> str:
        return f"shop.{name}"

    def shard(self, table: str) -> str:
        return f"log.{table}"

    def after(self, key: bytes, value: bytes) -> tuple[bytes, ...]:
        return key, value

    def after_delivered(self, marker: Datamarker) -> str:
        return marker.delivered

    def first_missing(self, marker: Datamarker) -> str:
        return marker.delivered
