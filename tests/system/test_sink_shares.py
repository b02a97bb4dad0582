"""Two processes of one sink share its shards over ZooKeeper; one is killed, and the other one fills the target."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.eventually import until
from tests.support.postgres_server import PostgresServer
from tests.support.repeating import repeating
from tests.system.harness.programs import Command
from tests.system.harness.up import Up

ROWS = 300
SHARDS = 4


@pytest.fixture
def database(mariadb_server: DatabaseServer) -> Iterator[str]:
    name = f"shop_{uuid.uuid4().hex[:8]}"
    mariadb_server.sql(f"CREATE DATABASE {name}")
    mariadb_server.sql("CREATE TABLE orders (id INT PRIMARY KEY, visits INT DEFAULT 0)", database=name)
    mariadb_server.sql(f"INSERT INTO orders (id) SELECT seq FROM seq_1_to_{ROWS}", database=name)
    yield name
    mariadb_server.sql(f"DROP DATABASE {name}")


@pytest.fixture
def up(tmp_path: Path, mariadb_server: DatabaseServer, database: str, postgres_database: str,
       postgres_server: PostgresServer) -> Iterator[Up]:  # fmt: skip
    server = mariadb_server
    source = f'source = "mariadb://{server.user}@{server.host}:{server.port}"\npassword_file = "{server.password_file}"'
    with closing(Up(tmp_path, source)) as made:
        target = f"postgresql://postgres@{postgres_server.host}:{postgres_server.port}/{postgres_database}"
        beginning = made.file.read_text().partition("[applications.")[0]
        alone = beginning.replace("[monitor]", "[monitor]\nsinks = []")  # the test runs the sink
        made.file.write_text(f"""{alone}
[datasets.shop]
shard_by = {{ hash = {SHARDS} }}
[applications.mirror]
dataset = "shop"
tables = ["{database}.*"]
start = "existing"
[sinks.mirror]
url = "{target}?sslmode=disable"
""")
        yield made


@contextmanager
def changing(server: DatabaseServer, database: str) -> Iterator[None]:
    """Change, insert and delete rows all the while."""
    numbers = itertools.count()
    with closing(server.connect(database=database, autocommit=False)) as connection, connection.cursor() as cursor:

        def change() -> None:
            number = next(numbers)
            cursor.execute(f"UPDATE orders SET visits = visits + 1 WHERE id % 7 = {number % 7}")
            cursor.execute(f"INSERT INTO orders (id) VALUES ({ROWS + 1 + number})")
            cursor.execute(f"DELETE FROM orders WHERE id = {number // 2}")
            connection.commit()

        with repeating(change, 0.02):
            yield


def owners(up: Up) -> list[str]:
    """The process of the sink that has each live flow."""
    code, text = up.does("flows", "-c", str(up.file), "--json")
    assert code == 0, text
    return [flow["subscriber"] for flow in json.loads(text)["flows"] if flow["state"] == "live"]


def test_two_processes_share_and_one_takes_over(
    up: Up,
    tmp_path: Path,
    mariadb_server: DatabaseServer,
    database: str,
    postgres_server: PostgresServer,
    postgres_database: str,
) -> None:
    words = ("sink", "run", "mirror", "-c", str(up.file))
    one, two = (Command(name, tmp_path, *words, environment={"WORMHOLE_ID": name}) for name in ("one", "two"))

    def rows() -> list[tuple[int, int]]:
        return [*mariadb_server.sql("SELECT id, visits FROM orders ORDER BY id", database=database)]

    def story() -> str:
        return f"{owners(up)}\n{one.tail()}\n{two.tail()}"

    code, text = up.up()
    assert code == 0, text
    try:
        with changing(mariadb_server, database):
            for process in (one, two):
                process.start()
            until(lambda: len(owners(up)) == SHARDS and {*owners(up)} == {"one", "two"}, story)
            one.kill()
            until(lambda: owners(up) == ["two"] * SHARDS, story)
        expected = rows()
        until(
            lambda: (
                postgres_server.sql("SELECT id, visits FROM orders ORDER BY id", database=postgres_database) == expected
            ),
            story,
        )
    finally:
        for process in (one, two):
            process.kill()
        up.down()
