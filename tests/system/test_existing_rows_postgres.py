"""``start = "existing"``, verify and repair of a PostgreSQL database with real processes, killed with ``kill -9``."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import closing
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
_OF_A_RELAY_FILE = 8 << 20  # an eighth of the smallest budget
_PUBLISHED = "ALTER PUBLICATION wormhole_db1 SET (publish = '{}')"


class Scene:
    """A table ``value`` by text keys, its publisher, and a program that keeps a copy."""

    def __init__(self, server: PostgresServer, folder: Path, relay: str = "", read_rate: str = "1MiB/s") -> None:
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
        source = f'source = "{server.url("shop")}"\npassword_file = "{server.password_file}"\n{relay}'
        caravans = f'caravans = {{ max_total_read_rate = "{read_rate}" }}'
        dataset = f'shard_by = "log"\n{caravans}\nexisting_rows = {{ memory = "4MiB" }}'
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

    def becomes(self, state: str) -> None:
        def so() -> bool:
            flow = self.publisher.flow("app")
            return flow is not None and flow.state == state

        until(so, lambda: f"it is {state}: {self.publisher.flow('app')} {self.publisher.tail()}")

    def noted(self) -> list[Path]:
        """Files that name rows which log changed that is no more."""
        return list(self.publisher.state.rglob("*.lost"))

    def ctl(self, *words: str) -> tuple[int, str]:
        code, out, err = run(*words, "-c", str(self.publisher.config))
        return code, out + err

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


def test_of_what_a_relay_gave_up_only_the_rows_that_changed_are_read_again(
    new_postgres: NewPostgres, tmp_path: Path
) -> None:
    """The publisher as it is run, with everything that stands around its relay."""
    relay = 'relay = "hold"\nslot_budget = "1MiB"\nrelay_budget = "64MiB"\nrelay_compression = "none"'
    with closing(Scene(new_postgres(), tmp_path, relay, read_rate="1GiB/s")) as scene:
        held = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'wormhole_db1_held'"
        noise = "INSERT INTO noise SELECT repeat('n', 1000) FROM generate_series(1, {})"
        scene.sql("CREATE TABLE noise (v text)")
        scene.publisher.start()
        scene.subscriber.start()
        until(lambda: scene.backfill().state == "done", lambda: f"done: {scene.publisher.tail()}")
        until(scene.is_equal, "the copy is made")
        scene.subscriber.stop()
        scene.sql(
            "UPDATE users SET value = 'changed' WHERE id LIKE 'Kéy-1_'",
            "DELETE FROM users WHERE id LIKE 'Kéy-2_'",
            "INSERT INTO users VALUES ('new', 'new')",
        )
        first_file = int(scene.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0]) + _OF_A_RELAY_FILE
        scene.sql(*[noise.format(1000)] * (2 * _OF_A_RELAY_FILE // 1_000_000))

        def is_given_up() -> bool:
            scene.sql(noise.format(1))
            return bool(scene.sql(held)[0][0] > first_file)

        until(is_given_up, "the server's log may go, which the relay has")
        assert scene.ctl("relay", "trim", "shop/main/db1", "--keep", "1B", "--yes")[0] == 0
        assert scene.noted(), "which rows changed is noted when the record goes"
        scene.publisher.stop()
        scene.publisher.start()  # nothing is in the change buffer of the next one
        scene.subscriber.start()
        scene.becomes("held")
        before = reads(scene.copy)

        code, told = scene.ctl("repair", "app/db1", "--yes")

        assert code == 0, told
        assert "21 keys of 1 table, from the relay" in told
        until(scene.is_equal, "the copy equals the table")
        assert reads(scene.copy) - before == 11, "those that are there"
        scene.sql("INSERT INTO users VALUES ('later', 'later')")
        until(scene.is_equal, "changes go on")
        until(lambda: not scene.noted(), "what is noted goes when every flow has passed it")
