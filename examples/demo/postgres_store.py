"""The demo on PostgreSQL. It starts a private server, which the writer uses through psycopg, as applications do."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import psycopg

from datastores.postgres.datastore import DATASTORE
from examples.demo.datastore import Content, Datastore, Store
from examples.demo.journal import digest
from examples.demo.postgres_server import PostgresServer
from examples.demo.scene import LOG
from examples.demo.workload import TABLES, Change
from wormhole.ports.datastore import Login

__all__ = ["DemoDatastore", "DemoStore"]

_DATABASE = "shop"
_WRITE = (
    "INSERT INTO shop.{table} (id, value) VALUES ('\\x{key}', '\\x{value}') "
    "ON CONFLICT (id) DO UPDATE SET value = excluded.value"
)
_DELETE = "DELETE FROM shop.{table} WHERE id = '\\x{key}'"


class DemoStore(Store):
    """A connection to the server at ``place`` (``host:port``), which has the workload's tables.

    Its tasks switch the log to another file, add a column to a table, and drop the column. Some subscribers have not
    yet received what was written before that.
    """

    chores: ClassVar[Mapping[str, Sequence[float]]] = {"rotate": (0.3, 0.8), "alter": (0.4,), "restore": (0.6,)}

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        self._connection = psycopg.connect(
            host=host, port=port, dbname=_DATABASE, user="postgres", sslmode="disable", autocommit=True
        )

    def _run(self, *statements: str) -> None:
        """Run the statements in one transaction: the server runs the statements of one message as a transaction."""
        self._connection.execute(";".join(statements).encode())

    def commit(self, changes: Sequence[Change]) -> None:
        self._run(
            *(
                _DELETE.format(table=change.table, key=change.key.hex())
                if change.value is None
                else _WRITE.format(table=change.table, key=change.key.hex(), value=change.value.hex())
                for change in changes
            )
        )

    def do(self, chore: str) -> str:
        if chore == "rotate":
            self._run("SELECT pg_switch_wal()")
            return "the log goes on in another file"
        if chore == "alter":
            self._run("ALTER TABLE shop.users ADD COLUMN note text DEFAULT 'new'")
            return "the writer altered table users: a new column"
        self._run("ALTER TABLE shop.users DROP COLUMN note")
        return "the writer altered table users: the column is gone"

    def close(self) -> None:
        self._connection.close()


class DemoDatastore(Datastore):
    """The server. At the end its files are copied to the demo's folder, which PostgreSQL's user cannot access."""

    def __init__(self, folder: Path, remove: str = "") -> None:
        super().__init__(folder, remove)
        self._kept = folder / "store"
        self._server = PostgresServer()

    def start(self) -> None:
        self._server.start()
        self._server.sql(f"CREATE DATABASE {_DATABASE}")
        columns = "id bytea PRIMARY KEY, value bytea NOT NULL"
        tables = (f"CREATE TABLE shop.{table} ({columns})" for table in TABLES)
        self._server.sql("CREATE SCHEMA shop", *tables, database=_DATABASE)
        # This does what `wormholectl objects create` does after its confirmation: it publishes the present tables.
        url = DATASTORE.url_of_log(f"postgres://postgres@{self.place}/{_DATABASE}", LOG)
        DATASTORE.run_statements(url, Login(), DATASTORE.server_objects(url, Login()).missing)
        password = self.folder / "password"
        password.touch(0o600)
        password.write_text(f"{self._server.password}\n")

    def close(self) -> None:
        if not self._server.pid:
            return
        self._server.stop()
        shutil.copytree(self._server.data, self._kept)
        self._server.close()

    @property
    def place(self) -> str:
        return f"{self._server.host}:{self._server.port}"

    @property
    def source(self) -> str:
        return f'source = "{self._server.url(_DATABASE)}"\npassword_file = "{self.folder / "password"}"'

    @property
    def told(self) -> str:
        return f"a private PostgreSQL at {self.place}, tables users and orders"

    def content(self) -> Content:
        content: dict[tuple[str, str], str] = {}
        with PostgresServer(template=self._kept) as server:
            for table in TABLES:
                rows = server.sql(f"SELECT id, value FROM shop.{table}", database=_DATABASE)
                content.update(((table, key.decode()), digest(value)) for key, value in rows)
        return content
