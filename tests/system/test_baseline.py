"""An archive that began late becomes whole: a real server with a publisher and an archiver, and the command killed on
its way, under a writer. Every statement of the writer is one transaction, so that its number says what the table was.

What is killed is a process. What goes on after it is the command within the test, whose Spark runs already.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from examples.demo.database_server import DatabaseServer
from spark_replay.archive.manifest import marker_from_text
from spark_replay.tables.start import about_start
from tests.support import spark_java
from tests.support.command_line import run
from tests.support.databases import start_server
from tests.support.eventually import until
from tests.support.pages import Page
from tests.support.ports import free_port
from tests.support.repeating import repeating
from tests.support.replay_stage import Stage
from tests.system.harness.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
_NUMBER = "a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n + 100000 * f.n"
_FILL = (
    f"INSERT INTO shop.orders SELECT 1 + {_NUMBER}, CONCAT('name ', a.n), 0 "
    f"FROM digits a, digits b, digits c, digits d, digits e, digits f WHERE {_NUMBER} < {ROWS}"
)
_TABLES = (
    "CREATE DATABASE shop",
    "USE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(40), n INT) ENGINE = InnoDB",
    "CREATE TABLE shop.digits (n INT PRIMARY KEY) ENGINE = InnoDB",
    "INSERT INTO shop.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    _FILL,
    "CREATE TABLE shop.tags (tag VARCHAR(20) PRIMARY KEY, n INT) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4",
    "INSERT INTO shop.tags SELECT CONCAT('Tag ', id), 0 FROM shop.orders WHERE id <= 2000",
    "CREATE TABLE shop.keyless (n INT) ENGINE = InnoDB",
)


class Shop(Stage):
    """The server, its publisher, and an archiver that begins when the tables have their rows."""

    def __init__(self, server: DatabaseServer, folder: Path) -> None:
        super().__init__(folder)
        self.server = server
        self.config.write_text(f"""version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder / "state"}"
[datasets.shop]
[datasets.shop.archive]
to = "{self.archive}"
flush_every = "200ms"
[datasets.shop.copies.main.logs.db1]
source = "{server.url}"
password_file = "{server.password_file}"
[applications.archive]
dataset = "shop"
start = "latest"
subscribers = {{ a1 = "127.0.0.1:{free_port()}" }}
""")
        self.publisher = self.wormholectl("publisher", "publisher", "run", "-c", str(self.config))
        self.archiver = self.wormholectl("archiver", "archive", "run", "-c", str(self.config))
        self.command = self.wormholectl("snapshot", environment=spark_java.environment())
        self.said = ""
        self.model: dict[str, dict[Any, tuple[Any, ...]]] = {}
        self.log: list[tuple[int, str, Any, tuple[Any, ...] | None]] = []
        self._choice = random.Random(5)
        self._connection = server.connect(autocommit=True)

    def processes(self) -> list[Process]:
        return [self.command, self.archiver, self.publisher]

    def close(self) -> None:
        super().close()
        self._connection.close()

    def snapshot(self, line: str) -> None:
        """Start the command."""
        given = shlex.split(line.removeprefix("wormholectl "))
        self.command.arguments[2:] = [*given, "--master", "local[2]", "--json"]
        self.command.start()

    def snapshot_here(self, line: str) -> dict[str, Any]:
        """Run the command within the test; what it prints at its end."""
        code, out, err = run(*shlex.split(line.removeprefix("wormholectl ")), "--json")
        assert code == 0, out + err
        self.said = out + err
        found: dict[str, Any] = json.loads(out)
        return found

    # -- the writer

    def write(self) -> None:
        """A change of one row of any kind, and its number."""
        chance, choice = self._choice.random(), self._choice
        table, key = "orders", choice.randrange(1, ROWS + 1000)
        row = (f"new {choice.random()}", choice.randrange(1000))
        if chance < 0.4:
            self._do(f"REPLACE INTO shop.orders VALUES ({key}, '{row[0]}', {row[1]})", table, key, (key, *row))
        elif chance < 0.6:
            self._do(f"DELETE FROM shop.orders WHERE id = {key}", table, key, None)
        elif chance < 0.9:
            tag = f"Tag {choice.randrange(1, 2000)}"
            self._do(f"REPLACE INTO shop.tags VALUES ('{tag}', {row[1]})", "tags", tag, (tag, row[1]))
        else:
            free = ROWS + 1000 + len(self.log)
            self._do(f"DELETE FROM shop.orders WHERE id = {key}", table, key, None)
            self._do(f"INSERT INTO shop.orders VALUES ({key}, 'moved', 1)", table, key, (key, "moved", 1))
            with self._connection.cursor() as cursor:
                cursor.execute(f"UPDATE shop.orders SET id = {free} WHERE id = {key}")
            number = self._number()
            self.log += [(number, table, key, None), (number, table, free, (free, "moved", 1))]

    def _do(self, statement: str, table: str, key: Any, row: tuple[Any, ...] | None) -> None:
        with self._connection.cursor() as cursor:
            changed = cursor.execute(statement)
        if changed:
            self.log.append((self._number(), table, key, row))

    def _number(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT @@last_gtid" if self.server.flavour == "mariadb" else "SELECT @@gtid_executed")
            return int(cursor.fetchall()[0][0].rpartition("-")[2])

    def selected(self, table: str) -> dict[Any, tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM shop.{table}")
            return {row[0]: tuple(row) for row in cursor.fetchall()}

    def at(self, table: str, number: int) -> dict[Any, tuple[Any, ...]]:
        """The table as it was after transaction ``number``."""
        rows = dict(self.model[table])
        for when, where, key, row in self.log:
            if where == table and when <= number:
                rows.pop(key, None)
                if row is not None:
                    rows[key] = row
        return rows


def table(folder: Path, name: str) -> dict[Any, tuple[Any, ...]]:
    rows = pq.read_table(folder / "tables" / f"shop.{name}").to_pylist()
    own = [tuple(value for column, value in row.items() if not column.startswith("_")) for row in rows]
    found = {row[0]: row for row in own}
    assert len(found) == len(rows)
    return found


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def shop(tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Shop]:
    assert spark.version  # it runs
    with start_server(request.param) as server:
        server.sql(*_TABLES)
        stage = Shop(server, tmp_path)
        try:
            stage.model = {name: stage.selected(name) for name in ("orders", "tags")}
            stage.publisher.start()
            stage.archiver.start()
            stage.wait("the archive has begun", lambda: (store := stage.store()) and store.read("db1"))
            yield stage
        finally:
            stage.close()


def test_an_archive_that_began_late_becomes_whole(shop: Shop) -> None:
    first, second = shop.folder / "first", shop.folder / "second"
    page = Page(
        "docs/tables.md",
        {
            "snapshot orders": "snapshot shop",
            "/data/baseline": str(first),
            "/data/snapshot": str(first),
            "/data/next": str(second),
            "shop.toml": str(shop.config),
        },
    )
    baseline, next_ = page.command("snapshot shop --baseline"), page.command("snapshot shop --from")
    password = shop.server.password_file.read_text().strip()
    with repeating(shop.write, 0.02):
        shop.snapshot(baseline)
        done = first / "baseline" / "done"
        until(lambda: done.is_dir() and any(done.iterdir()), shop.command.tail)
        shop.command.kill()
        kept = {path.name: path.stat().st_mtime_ns for path in done.iterdir() if path.suffix == ".json"}
        assert not (first / "snapshot.json").exists()
        with ThreadPoolExecutor(1) as thread:
            again = thread.submit(shop.snapshot_here, baseline)

            def folding() -> bool:
                now = {path.name: path.stat().st_mtime_ns for path in done.iterdir()} if done.is_dir() else {}
                assert all(now.get(name, at) == at for name, at in kept.items()), "a range was read twice"
                return (first / "updates").exists() or again.done()

            until(folding, "it folds nothing")
            result = again.result()
    assert password not in shop.command.output.read_text() + shop.said
    given = json.loads((first / "snapshot.json").read_text())
    number = int(marker_from_text(given["shards"]["db1"]["marker"]).delivered.rpartition("-")[2])
    assert shop.log[0][0] <= number <= shop.log[-1][0]
    for name in ("orders", "tags"):
        assert table(first, name) == shop.at(name, number), f"{name} is not what it was at transaction {number}"
    assert [one["table"] for one in result["left_out"]] == ["shop.keyless"]
    assert {one["table"]: one["problems"] for one in result["tables"]} == {
        "shop.digits": [],
        "shop.orders": [],
        "shop.tags": [],
    }
    assert not (first / "baseline").exists()
    assert not (first / "baseline.json").exists()
    about_start(str(first), "shop", wants=lambda name: name != "shop.keyless")
    end = shop.log[-1][0]
    shop.wait("all is archived", lambda: archived(shop) >= end)
    shop.snapshot_here(next_)
    for name in ("orders", "tags"):
        assert table(second, name) == shop.selected(name)


def archived(shop: Shop) -> int:
    """The last transaction in the archive."""
    store = shop.store()
    manifest = store and store.read("db1")
    return int(manifest.end.delivered.rpartition("-")[2]) if manifest else 0
