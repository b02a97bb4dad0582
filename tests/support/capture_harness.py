"""The harness of the source whose log triggers record, for :mod:`wormhole.ports.testing.contract`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from datastores.postgres.capture.datastore import DATASTORE
from datastores.postgres.capture.source import CaptureSource
from tests.support.postgres_harness import PostgresHarness
from tests.support.postgres_server import PostgresServer
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.testing.contract import Harness

__all__ = ["DATABASE", "CaptureHarness", "as_owner", "capture_source", "capture_url", "install", "options_of"]

DATABASE: Final = "captured"


def capture_url(server: PostgresServer, database: str, parameters: str = "") -> str:
    """The URL of the source."""
    scheme, rest = server.url(database).split("://", 1)
    assert scheme.startswith("postgres")
    return f"postgresql+capture://{rest}{parameters}"


def install(server: PostgresServer, database: str, *tables: str, parameters: str = "") -> None:
    """Let triggers record the tables."""
    url, login = capture_url(server, database, parameters), Login(server.password_file)
    DATASTORE.run_statements(url, login, DATASTORE.server_objects(url, login, tables).missing)


def as_owner(server: PostgresServer, database: str, *statements: str) -> None:
    """Run the statements as the account of the publisher, which then owns what they create."""
    granted = f"GRANT CREATE ON DATABASE {database} TO {server.user}"
    server.sql(granted, f"SET ROLE {server.user}", *statements, database=database)


def options_of(server: PostgresServer, state: Path, sharding: Sharding | None = None) -> SourceOptions:
    """The options of the log named ``log``."""
    return SourceOptions(
        log="log",
        state_dir=state,
        sharding=sharding or Sharding("log"),
        max_update_bytes=64 << 20,
        disk_budget=1 << 30,
        login=Login(server.password_file),
    )


def capture_source(
    server: PostgresServer, database: str, state: Path, sharding: Sharding | None = None, *, parameters: str = ""
) -> CaptureSource:
    """The source named ``log``, started."""
    source = CaptureSource(capture_url(server, database, parameters), options_of(server, state, sharding))
    source.start()
    return source


class CaptureHarness(PostgresHarness):
    """A PostgreSQL server that nothing else uses meanwhile. Its account owns a database, and may not replicate."""

    source: CaptureSource
    bounded_by_bytes = True

    def __init__(self, server: PostgresServer, folder: Path, sharding: Sharding) -> None:
        self.server = server
        self.state = folder / "state"
        self.saved = folder / "saved"
        self.sharding = sharding
        server.start()  # a test that failed may have stopped it
        if not server.sql(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):
            server.sql(f"CREATE DATABASE {DATABASE} OWNER {server.user}")
        server.sql(
            "DROP SCHEMA IF EXISTS wormhole CASCADE",
            "DROP SCHEMA IF EXISTS shop CASCADE",
            f"CREATE SCHEMA shop AUTHORIZATION {server.user}",
            *(f"CREATE TABLE shop.{name} (k bytea PRIMARY KEY, v bytea NOT NULL)" for name in "ab"),
            *(f"ALTER TABLE shop.{name} OWNER TO {server.user}" for name in "ab"),
            database=DATABASE,
        )
        install(server, DATABASE, "shop.*")
        self._start()
        self._open()

    def _open(self) -> None:
        self.source = capture_source(self.server, DATABASE, self.state, self.sharding)

    def _start(self) -> None:
        self.writer = self.server.connect(DATABASE, autocommit=False)

    def rotate(self) -> None:
        """The log is one file."""

    def purge(self) -> None:
        """Everything is released, and removed."""
        end = self.source.latest().order
        self.server.sql(f"SELECT wormhole.prune({end.offset}, 1000000)", database=DATABASE)
        self.commit([("put", "a", b"after the purge", b"")])

    after_delivered = Harness.after_delivered
    first_missing = Harness.first_missing
