"""What is delivered of an SQLite database, compared with its tables, whatever happens to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from datastores.sqlite.database import connect
from datastores.sqlite.datastore import DATASTORE
from datastores.sqlite.tables import load_tables
from datastores.sqlite.triggers import load_installation
from publisher.sources import open_source, open_tables
from tests.support.seed import SEED
from tests.support.sqlite_harness import install
from tests.support.sqlite_statements import TABLES, Statements, delivered, stored
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import ChunkLimits
from wormhole.ports.testing.images import LogImages

_ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "3"))


class Shop:
    """A database with our triggers, a connection that writes, and its source, started."""

    def __init__(self, folder: Path, options: str = "", mode: str = "WAL", tables: str = TABLES) -> None:
        self.path = folder / "shop.db"
        self.state = folder / "state"
        self.url = f"sqlite://{self.path}{options}"
        self.writer = self.connect()
        self.writer.execute(f"PRAGMA journal_mode = {mode}")
        self.writer.executescript(tables)
        install(self.path, options=options)
        self.source = self.open()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def open(self) -> LogSource:
        source = open_source(self.url, log="log", state_dir=self.state, sharding=Sharding("log"))
        source.start()
        return source

    def close(self) -> None:
        self.source.stop()
        self.writer.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def test_any_statements_give_what_the_tables_hold(shop: Shop) -> None:
    compare(shop)


@pytest.mark.parametrize(("mode", "recursive"), [("WAL", "ON"), ("DELETE", "OFF")])
def test_other_modes_give_the_same(tmp_path: Path, mode: str, recursive: str) -> None:
    shop = Shop(tmp_path, mode=mode)
    shop.writer.execute(f"PRAGMA recursive_triggers = {recursive}")
    compare(shop)
    shop.close()


def compare(shop: Shop) -> None:
    """Run statements, and compare what their updates and the existing rows give with the tables."""
    tables = open_tables(shop.url, SourceOptions("log", shop.state, Sharding("log"), 1 << 20, 0))
    images = LogImages(shop.source, shop.source.earliest())
    for seed in range(SEED, SEED + _ROUNDS):
        statements = Statements(shop.writer, seed)
        for _ in range(25):
            statements.transaction()
            images.read_on()
            assert delivered(images) == stored(shop.writer), f"seed {seed}"
        for name in images.tables:
            found: dict[bytes, bytes] = {}
            after, done = None, False
            while not done:
                chunk = tables.chunk(name, after, None, ChunkLimits(rows=3), images.marker)
                found |= chunk.rows
                after, done = chunk.last, chunk.done
            assert found == images.rows(name), f"seed {seed}"
            assert tables.rows(name, list(found), images.marker).rows == found
    images.close()
    tables.close()


def test_the_tables_as_models_see_them(shop: Shop) -> None:
    found = {table.name: table for table in DATASTORE.describe(shop.url, Login(), lambda name: name != "child")}
    assert set(found) == {"folded", "loose", "pair", "plain"}
    assert found["pair"].key == ("a", "b")
    assert [(c.name, c.content.value, c.nullable) for c in found["plain"].columns] == [
        ("id", "integer", False),
        ("code", "text", True),
        ("n", "integer", True),
        ("twice", "integer", True),
    ]


def test_a_statement_that_is_interrupted_is_an_error_and_never_an_answer(shop: Shop) -> None:
    """As an answer it would be: nothing is installed, or a table cannot be read."""
    with closing(connect(shop.path)) as connection:
        begun: list[str] = []

        def found(until: int) -> object:
            """What is read, where the statement after the first ``until`` is interrupted."""
            begun.clear()
            connection.set_trace_callback(begun.append)
            connection.set_progress_handler(lambda: len(begun) > until, 1)
            tables = load_tables(connection)
            return tables, load_installation(connection, tables)

        assert found(10_000) is not None
        statements = len(begun)
        assert statements > 10
        for until in range(statements):
            with pytest.raises(sqlite3.OperationalError, match="interrupted"):
                found(until)
