"""``start = "existing"``, verify and repair of a PostgreSQL database with real processes, killed with ``kill -9``."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.postgres_harness import prepare_database
from tests.support.postgres_server import NewPostgres, PostgresServer
from tests.support.publisher_process import PublisherProcess
from tests.support.seed import SEED
from tests.system.harness.copying import copied, opened, reads
from tests.system.harness.processes import Process
from wormhole.model.errors import StreamBroken
from wormhole.wire.v1 import admin_pb2

ROWS = 3_000
_TABLE = "public.users"
_PUBLISHED = "ALTER PUBLICATION wormhole_db1 SET (publish = '{}')"


class Scene:
    """A table ``value`` by text keys, its publisher, and a program that keeps a copy."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server = server
        self.copy = folder / "copy.sqlite"
        prepare_database(
            server,
            "shop",
            'CREATE TABLE users (id text COLLATE "und-x-icu" PRIMARY KEY, value text)',
            f"INSERT INTO users SELECT 'Kéy-' || n, repeat('v', 80) FROM generate_series(1, {ROWS}) n",
            name="wormhole_db1",
        )
        application = f"""[applications.app]
dataset = "shop"
start = "existing"
tables = ["{_TABLE}"]
subscribers = {{ app-1 = "127.0.0.1:{free_port()}" }}"""
        source = f'source = "{server.url("shop")}"\npassword_file = "{server.password_file}"'
        dataset = 'shard_by = "log"\ncaravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { memory = "4MiB" }'
        settings = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"'
        self.publisher = PublisherProcess(folder, source, application, publisher=settings, dataset=dataset)
        given = {
            "application": "app",
            "copy": str(self.copy),
            "options": {"id": "app-1", "coordinator": str(self.publisher.config)},
        }
        self.subscriber = Process("app", ["-m", "tests.system.harness.comparing", json.dumps(given)], folder)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements, database="shop")

    def is_equal(self) -> bool:
        there: dict[str, str] = dict(self.sql("SELECT id, value FROM users"))
        return copied(self.copy, _TABLE) == there

    def backfill(self) -> admin_pb2.BackfillStatus:
        try:
            flow = self.publisher.flow("app")
        except StreamBroken:
            flow = None  # it was killed a moment ago
        return admin_pb2.BackfillStatus() if flow is None else flow.backfill

    def damage(self, sql: str) -> None:
        """Write to the copy behind the application's back."""
        database = opened(self.copy)
        database.execute(sql)
        database.close()

    def verify(self, *options: str) -> tuple[int, dict[str, int]]:
        code, out, err = run("verify", "app", *options, "--yes", "--json", "-c", str(self.publisher.config))
        assert out, err
        (flow,) = json.loads(out.splitlines()[-1])["flows"]
        (table,) = flow["backfill"]["verified"]
        return code, table

    def close(self) -> None:
        self.publisher.kill()
        self.subscriber.kill()


@pytest.fixture
def scene(new_postgres: NewPostgres, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(new_postgres(), tmp_path)
    try:
        yield made
    finally:
        made.close()


class Writes:
    """Changes of random rows for as long as the block lasts: each kind of change, and one long transaction."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._chance = scene, random.Random(SEED)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with self._scene.server.connect("shop") as connection:
            while not self._ends.wait(0.005):
                number += 1
                one, other = (f"Kéy-{self._chance.randrange(ROWS + 300)}" for _ in range(2))
                match self._chance.randrange(4):
                    case 0:
                        connection.execute("DELETE FROM users WHERE id = %s", (one,))
                    case 1:
                        free = "NOT EXISTS (SELECT FROM users WHERE id = %s)"
                        connection.execute(f"UPDATE users SET id = %s WHERE id = %s AND {free}", (other, one, other))
                    case 2:
                        connection.execute("UPDATE users SET value = %s WHERE id = %s", (f"u{number}", one))
                    case _:
                        put = "INSERT INTO users VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
                        connection.execute(put, (one, f"r{number}"))


def test_the_copy_equals_the_table_whatever_was_killed_and_lost(scene: Scene) -> None:
    scene.publisher.start()
    scene.subscriber.start()
    with Writes(scene):
        for victim in (scene.publisher, scene.subscriber):
            before = reads(scene.copy)
            until(lambda before=before: reads(scene.copy) > before, lambda: f"rows come: {scene.publisher.tail()}")  # type: ignore[misc]
            victim.kill()
            victim.start()
        until(lambda: scene.backfill().state == "done", lambda: f"done: {scene.backfill()} {scene.publisher.tail()}")
    until(scene.is_equal, f"the copy equals the table, seed {SEED}")
    assert reads(scene.copy) > 0.5 * ROWS

    # Deletes that the log does not have.
    scene.sql(
        _PUBLISHED.format("insert, update, truncate"),
        "DELETE FROM users WHERE id LIKE 'Kéy-11%'",
        _PUBLISHED.format("insert, update, delete, truncate"),
    )
    scene.publisher.change("app", "backfill_start")
    until(lambda: scene.backfill().generation == 2 and scene.backfill().state == "done", "done again")
    until(scene.is_equal, "the deleted rows are gone")

    keys = [key for (key,) in scene.sql("SELECT id FROM users LIMIT 2")]
    scene.damage(f"UPDATE rows SET value = 'flipped' WHERE key = '{keys[0]}'")
    scene.damage(f"DELETE FROM rows WHERE key = '{keys[1]}'")
    scene.damage(f"INSERT INTO rows VALUES ('{_TABLE}', 'added', 0, 'added')")
    code, found = scene.verify()
    assert (code, found["differs"], found["missing"], found["extra"]) == (1, 1, 1, 1), found
    code, found = scene.verify("--repair")
    assert (code, found["repaired"], found["removed"]) == (0, 2, 1), found
    assert scene.is_equal()
