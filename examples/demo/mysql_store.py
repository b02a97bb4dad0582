"""The demo on MariaDB: a private server, which the writer's process uses like any application, through PyMySQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pymysql
from pymysql.constants.CLIENT import MULTI_STATEMENTS

from examples.demo.datastore import Content, Datastore, Store
from examples.demo.journal import digest
from examples.demo.mariadb import MariaDbServer
from examples.demo.workload import TABLES, Change

__all__ = ["DemoDatastore", "DemoStore"]

_DATABASE = "shop"
_WRITE = "INSERT INTO {table} (id, value) VALUES (%s, %s) ON DUPLICATE KEY UPDATE value = VALUES(value)"
_DELETE = "DELETE FROM {table} WHERE id = %s"


class DemoStore(Store):
    """A connection to the server that listens at ``place``, ``host:port``; one table for each of the workload's.

    The binlog goes on in another file, and the columns change their places while some subscribers have yet to get
    what was written before.
    """

    chores: ClassVar[Mapping[str, Sequence[float]]] = {"rotate": (0.3, 0.8), "alter": (0.4,)}

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        self._connection = pymysql.connect(
            host=host, port=int(port), user="root", charset="utf8mb4", client_flag=MULTI_STATEMENTS
        )
        columns = "id VARBINARY(40) PRIMARY KEY, value VARBINARY(4096) NOT NULL"
        self._run(
            f"CREATE DATABASE {_DATABASE}",
            f"USE {_DATABASE}",
            *(f"CREATE TABLE {table} ({columns})" for table in TABLES),
        )

    def _run(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(";".join(statements))
            while cursor.nextset():
                pass

    def commit(self, changes: Sequence[Change]) -> None:
        with self._connection.cursor() as cursor:
            statements = [
                cursor.mogrify(_DELETE.format(table=change.table), (change.key,))
                if change.value is None
                else cursor.mogrify(_WRITE.format(table=change.table), (change.key, change.value))
                for change in changes
            ]
        self._run("BEGIN", *statements, "COMMIT")

    def do(self, chore: str) -> str:
        if chore == "rotate":
            self._run("FLUSH BINARY LOGS")
            return "the binlog goes on in another file"
        self._run("ALTER TABLE users ADD COLUMN note VARCHAR(20) FIRST")
        return "the writer altered table users: a column in front of the others"

    def close(self) -> None:
        self._connection.close()


class DemoDatastore(Datastore):
    """The server, in a folder of the demo's."""

    def __init__(self, folder: Path, remove: str = "") -> None:
        super().__init__(folder, remove)
        self._server = MariaDbServer(folder / "store", remove=remove)

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.stop()

    @property
    def place(self) -> str:
        return f"{self._server.host}:{self._server.port}"

    @property
    def source(self) -> str:
        return f'source = "{self._server.url}"\npassword_file = "{self._server.password_file}"'

    @property
    def told(self) -> str:
        return f"a private MariaDB at {self.place}, tables users and orders"

    def content(self) -> Content:
        content: dict[tuple[str, str], str] = {}
        with self._server as server:
            for table in TABLES:
                rows = server.sql(f"SELECT id, value FROM {_DATABASE}.{table}")
                content.update(((table, key.decode()), digest(value)) for key, value in rows)
        return content
