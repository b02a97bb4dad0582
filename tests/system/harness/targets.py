"""What the effects of an application happen in: a database with counters and a ledger, and the server that has it."""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.support.databases import DatabaseServer, new_database_server
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import PostgresServer, template
from tests.system.harness.commit_proxy import CommitProxy

__all__ = ["ACCOUNTS", "KINDS", "Entry", "MariaDb", "PooledPostgres", "Postgres", "ServerTarget", "Sqlite", "Target"]

ACCOUNTS: Final = ("a", "b", "c", "d")
Entry = tuple[int, str, int]
"""The number of a transaction of the source, an account, and what it was incremented by."""
_MADE: Final = (
    "DROP TABLE IF EXISTS counters",
    "DROP TABLE IF EXISTS ledger",
    "DROP TABLE IF EXISTS wormhole_marker",
    "CREATE TABLE counters (account VARCHAR(8) PRIMARY KEY, total BIGINT NOT NULL)",
    "CREATE TABLE ledger (number BIGINT NOT NULL, account VARCHAR(8) NOT NULL, amount BIGINT NOT NULL)",
    *(f"INSERT INTO counters VALUES ('{name}', 0)" for name in ACCOUNTS),
)


class Target(ABC):
    """``store``: which of :mod:`subscriber_sdk.transactional`'s stores keeps the datamarker."""

    kind: ClassVar[str]
    store: ClassVar[str] = "sqlalchemy"

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the application finds it."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection that no proxy stands before; each statement is a transaction unless one is begun."""

    def empty(self) -> None:
        """Make the tables anew, with no effects and no datamarker."""
        self.run(*_MADE)

    def run(self, *statements: str) -> list[Any]:
        """Execute each; the rows of the last one."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    @abstractmethod
    def copy(self, to: Path) -> None:
        """Copy what is on disk, which nothing uses meanwhile."""

    @abstractmethod
    def put_back(self, copy: Path) -> None:
        """Put a copy in its place."""

    def ledger(self) -> Counter[Entry]:
        """How often each entry is there."""
        return Counter((int(n), str(account), int(amount)) for n, account, amount in self.run("SELECT * FROM ledger"))

    def counters(self) -> dict[str, int]:
        """Each account's total."""
        return {str(account): int(total) for account, total in self.run("SELECT * FROM counters")}

    def close(self) -> None:  # noqa: B027 - a file needs nothing
        """End its server."""


class Sqlite(Target):
    """A file."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "target.sqlite"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"

    def connect(self) -> Any:
        return sqlite3.connect(self._file, isolation_level=None, timeout=60)

    def copy(self, to: Path) -> None:
        shutil.copyfile(self._file, to)

    def put_back(self, copy: Path) -> None:
        shutil.copyfile(copy, self._file)


class ServerTarget(Target):
    """A database of a server of its own, which the application finds behind :attr:`proxy`."""

    server: PostgresServer | DatabaseServer
    proxy: CommitProxy
    heavier: ClassVar[str]
    """A statement after which a deadlock with this transaction is not this one's end."""
    waits: ClassVar[str]
    """How many transactions wait for a lock."""

    def start(self) -> None:
        """Start the server, and the proxy before it."""
        self.server.start()
        self.proxy = CommitProxy(self.kind, self.server.port)

    def copy(self, to: Path) -> None:
        """The data folder of the server, which was stopped in order."""
        self.server.stop()
        shutil.copytree(self.server.data, to)
        self.server.start()

    def put_back(self, copy: Path) -> None:
        self.server.stop()
        shutil.rmtree(self.server.data)
        shutil.copytree(copy, self.server.data)
        if isinstance(self.server, PostgresServer):
            self.server.own_data()
        self.server.start()

    def waiting(self) -> int:
        """How many transactions wait for a row that another one has."""
        return int(self.run(self.waits)[0][0])

    def kill(self) -> None:
        """``kill -9`` of the server."""
        self.server.kill()

    def restart(self) -> None:
        """``kill -9`` of the server, and start it on the same port."""
        self.kill()
        self.server.start()

    def close(self) -> None:
        self.proxy.close()
        self.server.close()


class Postgres(ServerTarget):
    """A PostgreSQL, and psycopg."""

    kind = "postgres"
    store = "psycopg"
    heavier = "SET deadlock_timeout = '1h'"
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def __init__(self, folder: Path) -> None:
        self.server = PostgresServer(template=template(), options={"deadlock_timeout": "50ms"})
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.proxy.port}/postgres?sslmode=disable&gssencmode=disable"

    def connect(self) -> Any:
        assert isinstance(self.server, PostgresServer)
        return self.server.connect()


class PooledPostgres(Postgres):
    """A PostgreSQL behind a pooler, which gives each transaction another session."""

    def start(self) -> None:
        self.server.start()
        self.pooler = PgBouncer(self.server.port)
        self.pooler.start()
        self.proxy = CommitProxy(self.kind, self.pooler.port)

    def close(self) -> None:
        super().close()
        self.pooler.close()


class MariaDb(ServerTarget):
    """A MariaDB, and SQLAlchemy with PyMySQL."""

    kind = "mariadb"
    heavier = "INSERT INTO bank.ballast SELECT seq FROM seq_1_to_1000"
    waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"

    def __init__(self, folder: Path) -> None:
        self.server = new_database_server("mariadb")
        self.start()
        assert isinstance(self.server, DatabaseServer)
        self.server.sql("CREATE DATABASE bank", "CREATE TABLE bank.ballast (n INT)")

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.proxy.port}/bank"

    def connect(self) -> Any:
        assert isinstance(self.server, DatabaseServer)
        return self.server.connect(database="bank")


KINDS: Final[dict[str, Callable[[Path], Target]]] = {"postgres": Postgres, "mariadb": MariaDb, "sqlite": Sqlite}
