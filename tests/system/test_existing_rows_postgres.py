"""``start = "existing"``, verify and repair of a PostgreSQL database with real processes, killed with ``kill -9``."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import until
from tests.support.postgres_harness import prepare_database
from tests.support.postgres_server import NewPostgres, PostgresServer
from tests.support.seed import SEED
from tests.system.harness.copied_table import CopiedTable, changing
from tests.system.harness.copying import reads

ROWS = 3_000
_PUBLISHED = "ALTER PUBLICATION wormhole_db1 SET (publish = '{}')"


class Scene(CopiedTable):
    """A table of a PostgreSQL server, and the application ``app``."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server = server
        prepare_database(
            server,
            "shop",
            'CREATE TABLE users (id text COLLATE "und-x-icu" PRIMARY KEY, value text)',
            f"INSERT INTO users SELECT 'Kéy-' || n, repeat('v', 80) FROM generate_series(1, {ROWS}) n",
            name="wormhole_db1",
        )
        source = f'source = "{server.url("shop")}"\npassword_file = "{server.password_file}"'
        dataset = 'shard_by = "log"\ncaravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { memory = "4MiB" }'
        super().__init__(folder, "public.users", source, dataset, {"app": "existing"}, "comparing")
        self.subscriber = self.subscribers["app"]

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements, database="shop")

    def rows(self) -> dict[str, str]:
        return dict(self.sql("SELECT id, value FROM users"))

    def changing(self) -> AbstractContextManager[None]:
        chance = random.Random(SEED)
        connection, key = self.server.connect("shop"), lambda: f"Kéy-{chance.randrange(ROWS + 300)}"
        return changing(connection, "postgres", "users", chance, key)

    def verify(self, *options: str) -> tuple[int, dict[str, int]]:
        code, out, err = self.ctl("verify", "app", *options, "--yes", "--json")
        assert out, err
        (flow,) = json.loads(out.splitlines()[-1])["flows"]
        (table,) = flow["backfill"]["verified"]
        return code, table


@pytest.fixture
def scene(new_postgres: NewPostgres, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(new_postgres(), tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_the_copy_equals_the_table_whatever_was_killed_and_lost(scene: Scene) -> None:
    scene.publisher.start()
    scene.subscriber.start()
    with scene.changing():
        for victim in (scene.publisher, scene.subscriber):
            before = reads(scene.copy())
            until(lambda before=before: reads(scene.copy()) > before, lambda: f"rows come: {scene.publisher.tail()}")  # type: ignore[misc]
            victim.kill()
            victim.start()
        scene.await_done()
    until(scene.is_equal, f"the copy equals the table, seed {SEED}")
    assert reads(scene.copy()) > 0.5 * ROWS

    # Deletes that the log does not have.
    scene.sql(
        _PUBLISHED.format("insert, update, truncate"),
        "DELETE FROM users WHERE id LIKE 'Kéy-11%'",
        _PUBLISHED.format("insert, update, delete, truncate"),
    )
    scene.publisher.change("app", "backfill_start")
    scene.await_done(generation=2)
    until(scene.is_equal, "the deleted rows are gone")

    keys = [key for (key,) in scene.sql("SELECT id FROM users LIMIT 2")]
    scene.damage("UPDATE rows SET value = 'flipped' WHERE key = ?", keys[0])
    scene.damage("DELETE FROM rows WHERE key = ?", keys[1])
    scene.damage("INSERT INTO rows VALUES (?, 'added', 0, 'added')", scene.table)
    code, found = scene.verify()
    assert (code, found["differs"], found["missing"], found["extra"]) == (1, 1, 1, 1), found
    code, found = scene.verify("--repair")
    assert (code, found["repaired"], found["removed"]) == (0, 2, 1), found
    assert scene.is_equal()
