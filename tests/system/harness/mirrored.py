"""Tables of a database under random load, and a SQL mirror of them in another one; both dumped by plain SELECTs."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg
import pymysql

from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.postgres_harness import prepare_database
from tests.support.postgres_server import PostgresServer
from tests.support.publisher_process import PublisherProcess
from tests.support.repeating import repeating
from tests.system.harness.programs import Command
from wormhole.wire.v1 import admin_pb2

__all__ = ["APPLICATION", "FileTarget", "Load", "Mirrored", "MySqlSide", "PostgresSide", "Side"]

APPLICATION: Final = "mirror"
ROWS: Final = 400
_SETTINGS: Final = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "20s"'
_ALTER: Final = 120  # transactions between two statements of DDL, each of which begins an epoch
_ALTERED: Final = 6
_REFUSED: Final = (psycopg.errors.IntegrityError, pymysql.err.IntegrityError)
_KEYS: Final = ("a", "A", "á", "ß", "ss", "a'b\"c`\\", "%s", "😀", "x" * 90, "日本")


class Side:
    """A database. ``types``: how it writes the types of the tables."""

    types: ClassVar[dict[str, str]]
    url: str
    password_file: Path | None = None

    def connect(self) -> Any:
        """A connection. It commits by itself only where :meth:`rows` reads."""
        raise NotImplementedError

    def shown(self, column: str) -> str:
        """A column in a SELECT of the dump, so that times are text."""
        raise NotImplementedError

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    def dump(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Every row of a table, in a form that is the same for equal values, in one order."""
        found = self.rows(f"SELECT {', '.join(map(self.shown, columns))} FROM {table}")
        return sorted((tuple(map(_plain, columns, row)) for row in found), key=repr)


class PostgresSide(Side):
    types: ClassVar = {
        "bytes": "bytea",
        "text": "text",
        "time": "timestamp(6)",
        "key": "varchar(100)",
        "bool": "boolean",
    }

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server, self.database = server, database
        if not server.sql(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
            server.sql(f"CREATE DATABASE {database}")
        self.source = f'source = "{server.url(database)}"\npassword_file = "{server.password_file}"'
        self.url = f"postgresql://postgres@{server.host}:{server.port}/{database}?sslmode=disable"

    def connect(self) -> Any:
        return self.server.connect(self.database, autocommit=False)

    def shown(self, column: str) -> str:
        return f"{column}::text" if column == "moment" else column

    def prepare(self, *statements: str) -> None:
        """Make the tables of a source."""
        prepare_database(self.server, self.database, *statements, name="wormhole_db1")


class MySqlSide(Side):
    types: ClassVar = {
        "bytes": "LONGBLOB",
        "text": "LONGTEXT CHARACTER SET utf8mb4",
        "time": "DATETIME(6)",
        "key": "VARCHAR(100) CHARACTER SET utf8mb4",
        "bool": "BOOLEAN",
    }

    def __init__(self, server: DatabaseServer, database: str) -> None:
        self.server, self.database = server, database
        server.sql(f"CREATE DATABASE {database}")
        self.source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        self.url = f"{server.flavour}://root@{server.host}:{server.port}/{database}"

    def connect(self) -> Any:
        return self.server.connect(database=self.database, autocommit=False)

    def shown(self, column: str) -> str:
        return f"CAST({column} AS CHAR)" if column == "moment" else column

    def prepare(self, *statements: str) -> None:
        """Make the tables of a source."""
        self.server.sql(*statements, database=self.database)


class FileTarget(Side):
    """A file of SQLite's or DuckDB's. DuckDB's can be read only while no sink has it open."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self.url = f"sqlite:///{path}" if kind == "sqlite" else f"duckdb://{path}"

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.path, timeout=60)
        import duckdb

        return duckdb.connect(str(self.path), read_only=True)

    def shown(self, column: str) -> str:
        return column


class Load:
    """Random transactions, and now and then a statement of DDL. ``columns``: the present ones of each table."""

    def __init__(self, source: PostgresSide | MySqlSide, chance: random.Random) -> None:
        self.source, self.chance = source, chance
        self.transactions = 0
        self.altered: list[str] = []
        self.columns = {
            "orders": ["id", "n", "amount", "label", "data", "moment", "flag"],
            "notes": ["id", "body"],
        }
        kinds = source.types
        source.prepare(
            "DROP TABLE IF EXISTS orders",
            "DROP TABLE IF EXISTS notes",
            f"CREATE TABLE orders (id INT PRIMARY KEY, n INT, amount DECIMAL(12,3), label {kinds['text']}, "
            f"data {kinds['bytes']}, moment {kinds['time']}, flag {kinds['bool']})",
            f"CREATE TABLE notes (id {kinds['key']} PRIMARY KEY, body {kinds['text']})",
        )
        with closing(source.connect()) as connection, closing(connection.cursor()) as cursor:
            for key in range(ROWS):
                self._insert(cursor, "orders", key)
            for text in _KEYS:
                with suppress(*_REFUSED):
                    cursor.execute("SAVEPOINT one")
                    self._insert(cursor, "notes", text)
                    continue
                cursor.execute("ROLLBACK TO SAVEPOINT one")
            connection.commit()

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the block lasts."""
        with closing(self.source.connect()) as connection, closing(connection.cursor()) as cursor:

            def work() -> None:
                self._transaction(connection, cursor)
                if self.transactions % _ALTER == 0 and len(self.altered) < _ALTERED:
                    self._alter(connection, cursor)

            with repeating(work, 0.01):
                yield

    def _transaction(self, connection: Any, cursor: Any) -> None:
        self.transactions += 1
        try:
            for _ in range(self.chance.choice((1, 1, 2, 30))):
                self._change(cursor)
        except _REFUSED:
            connection.rollback()
            return
        if self.chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()

    def _change(self, cursor: Any) -> None:
        chance = self.chance
        table = chance.choice(("orders", "orders", "notes"))
        key, other = self._key(table), self._key(table)
        roll = chance.random()
        if roll < 0.35:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
            self._insert(cursor, table, key)
        elif roll < 0.7:
            column = chance.choice(self.columns[table][1:])
            cursor.execute(f"UPDATE {table} SET {column} = %s WHERE id = %s", (self._value(column), key))
        elif roll < 0.85:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (other,))
            cursor.execute(f"UPDATE {table} SET id = %s WHERE id = %s", (other, key))
        elif roll < 0.997:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
        elif table == "notes":
            self._truncate(cursor)

    def _truncate(self, cursor: Any) -> None:
        cursor.execute("TRUNCATE TABLE notes")

    def _insert(self, cursor: Any, table: str, key: Any) -> None:
        columns = self.columns[table]
        values = [key, *map(self._value, columns[1:])]
        cursor.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(values))})", values)

    def _key(self, table: str) -> Any:
        return self.chance.randrange(ROWS + 200) if table == "orders" else self.chance.choice(_KEYS)

    def _value(self, column: str) -> Any:
        chance = self.chance
        if chance.random() < 0.1:
            return None
        match column:
            case "n":
                number = chance.choice((0, -1, (1 << 31) - 1, chance.randrange(10_000)))
                return number if len(self.altered) <= 3 else f"{number:05}"
            case "amount":
                return Decimal(chance.randrange(-(10**11), 10**11)) / 1000
            case "data":
                return chance.randbytes(chance.choice((0, 1, 40, 9_000)))
            case "moment":
                return f"2024-02-29 12:00:00.{chance.randrange(10**6):06}"
            case "flag":
                return chance.random() < 0.5
        if column.startswith("number"):
            return chance.randrange(1_000)
        if chance.random() < 0.1:  # incompressible, so that PostgreSQL stores it elsewhere
            return "".join(chance.choices("abcdefghijklmnopqrstuvwxyzéß日😀", k=5_000))
        return chance.choice(("", " ", "007", "1e5", "é\n\t'", "\\N", "null", "😀" * 20, str(chance.random())))

    def _alter(self, connection: Any, cursor: Any) -> None:
        """One of the changes that need no backfill, in turn."""
        number = len(self.altered)
        table, text = self.chance.choice(("orders", "notes")), self.source.types["text"]
        if number == 3:
            change = f"MODIFY n {text}" if isinstance(self.source, MySqlSide) else "ALTER n TYPE text"
            statement = f"ALTER TABLE orders {change}"
        elif number % 3 == 2 and len(self.columns[table]) > 2:
            statement = f"ALTER TABLE {table} DROP COLUMN {self.columns[table].pop()}"
        else:
            column = f"{self.chance.choice(('number', 'text'))}_{number}"
            statement = f"ALTER TABLE {table} ADD COLUMN {column} {'INT' if column.startswith('number') else text}"
            self.columns[table].append(column)
        cursor.execute(statement)
        connection.commit()
        self.altered.append(statement)

    def alter_rows(self) -> None:
        """Change rows without logging them, so that a backfill has to bring their values."""
        renamed = self.columns["orders"].index("label")
        self.columns["orders"][renamed] = "title"
        self.columns["orders"].append("number_default")
        for change in ("RENAME COLUMN label TO title", "ADD COLUMN number_default INT DEFAULT 7"):
            self.altered.append(f"ALTER TABLE orders {change}")
        with closing(self.source.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in self.altered[-2:]:
                cursor.execute(statement)
            connection.commit()


class Mirrored:
    """The processes, and what is compared."""

    def __init__(self, folder: Path, load: Load, target: Side) -> None:
        self.load, self.target = load, target
        listen = free_port()
        applications = f"""[applications.{APPLICATION}]
dataset = "shop"
start = "existing"
subscribers = {{ {APPLICATION}-1 = "127.0.0.1:{listen}" }}
[sinks.{APPLICATION}]
url = "{target.url}"
"""
        dataset = 'caravans = { max_total_read_rate = "4MiB/s" }'
        self.publisher = PublisherProcess(
            folder, load.source.source, applications, publisher=_SETTINGS, dataset=dataset
        )
        self.sink = Command("sink", folder, "sink", "run", APPLICATION, "-c", str(self.publisher.config))

    def flow(self) -> admin_pb2.FlowStatus:
        """Its state, once it is known."""
        found = until(lambda: self.publisher.flow(APPLICATION), self.story)
        assert found is not None
        return found

    def story(self) -> str:
        """What happened, for a failure."""
        flow = self.publisher.flow(APPLICATION) if self.publisher.alive else None
        state = "" if flow is None else f"{flow.state} {flow.cause} {flow.backfill}"
        return f"{state}\nDDL: {self.load.altered}\n{self.publisher.tail()}\n{self.sink.tail()}"

    def moves(self) -> None:
        """Wait until some more was acknowledged."""
        before = self.flow().marker.delivered
        until(lambda: self.flow().marker.delivered != before, self.story)

    def backfilled(self, generation: int) -> bool:
        """Whether the backfill with this number has ended."""
        backfill = self.flow().backfill
        return backfill.state == "done" and backfill.generation >= generation

    def differing(self) -> dict[str, list[Any]]:
        """Rows of the source that the target has not, and the other way round."""
        found = {}
        for table, columns in self.load.columns.items():
            ours, theirs = self.load.source.dump(table, columns), self.target.dump(table, columns)
            if ours != theirs:
                here, there = set(ours), set(theirs)
                found[table] = [len(ours), len(theirs), *sorted(here - there, key=repr)[:2],
                                *sorted(there - here, key=repr)[:2]]  # fmt: skip
        return found

    def ctl(self, *words: str) -> tuple[int, str, str]:
        """Run a command of ``wormholectl``."""
        return run(*words, "-c", str(self.publisher.config))

    def close(self) -> None:
        """Kill what runs."""
        for process in (self.publisher, self.sink):
            process.kill()


def _plain(column: str, value: Any) -> Any:
    """One form for values that the databases show in several."""
    if value is None:
        return None
    match column:
        case "amount":
            return format(Decimal(value).normalize(), "f")
        case "moment":
            return str(value).rstrip("0")
        case "flag":
            return int(value)
    return value
