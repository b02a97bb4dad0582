"""``start = "existing"`` and backfills with real processes: the application's copy equals the server's table at the
end, whatever was written, and killed with ``kill -9``, on the way."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.eventually import until
from tests.support.seed import SEED
from tests.system.harness.copied_table import CopiedTable, changing
from tests.system.harness.copying import reads

KILLS = min(20, int(os.environ.get("WORMHOLE_ROUNDS", "3")))
ROWS = 4_000
MANY = 20_000
TWO_CHUNKS = 6_000  # the server may read so many more that are not for all three
# So little that the table comes in dozens of chunks.
_DATASET = 'caravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { rate = "2MiB/s", memory = "4MiB" }'


def _key(number: int) -> str:
    return f"Kéy-{number:05}"


class Scene(CopiedTable):
    """A table of ``rows`` rows on a MariaDB server."""

    def __init__(self, server: DatabaseServer, folder: Path, starts: Mapping[str, str], rows: int = ROWS) -> None:
        self.server = server
        self.database = f"rows_{os.getpid()}_{folder.name[-12:]}".replace("-", "_")
        table = f"{self.database}.users"
        server.sql(
            f"CREATE DATABASE {self.database}",
            f"CREATE TABLE {table} (id VARCHAR(40) PRIMARY KEY, value VARCHAR(200)) CHARACTER SET utf8mb4",
        )
        for first in range(0, rows, 500):
            values = ",".join(f"('{_key(number)}', '{'v' * 80}')" for number in range(first, first + 500))
            server.sql(f"INSERT INTO {table} VALUES {values}")
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        super().__init__(folder, table, source, _DATASET, starts)

    def rows(self) -> dict[str, str]:
        return dict(self.server.sql(f"SELECT id, value FROM {self.table}"))

    def changing(self) -> AbstractContextManager[None]:
        chance = random.Random(SEED)
        connection, key = self.server.connect(), lambda: _key(chance.randrange(ROWS + 500))
        return changing(connection, "mariadb", self.table, chance, key, alter=True)

    def waiting(self) -> int:
        """Number of the newest query that waits for a lock of a table; 0 for none."""
        newest = "SELECT MAX(query_id) FROM information_schema.processlist"
        waits = "state LIKE 'Waiting for table%' AND info LIKE '%SELECT%'"
        return int(self.server.sql(f"{newest} WHERE {waits}")[0][0] or 0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within the block no row of the table can be read."""
        connection = self.server.connect()
        with connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {self.table} WRITE")
            yield
            cursor.execute("UNLOCK TABLES")

    def close(self) -> None:
        super().close()
        self.server.sql(f"DROP DATABASE {self.database}")


@pytest.fixture
def flavour() -> str:
    return "mariadb"


@pytest.fixture
def scene(database_server: DatabaseServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = Scene(database_server, tmp_path, *request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("scene", [({"early": "existing", "late": "latest"},)], ids=[""], indirect=True)
def test_the_copies_equal_the_table_whatever_is_killed_and_paused(scene: Scene) -> None:
    early, copy, change = scene.subscribers["early"], scene.copy("early"), scene.publisher.change
    scene.publisher.start()
    early.start()
    with scene.changing():
        for kill in range(KILLS):
            before = reads(copy)
            until(
                lambda before=before: reads(copy) > before or scene.backfill("early").state == "done",  # type: ignore[misc]
                lambda: f"no rows come, seed {SEED}: {scene.publisher.tail()}",
            )
            victim = early if kill % 3 == 2 else scene.publisher
            victim.kill()
            victim.start()
        scene.await_done("early")
        assert reads(copy) > 0.5 * ROWS

        scene.publisher.kill()  # its buffer has the rows that early was sent, and late would get them from there
        scene.publisher.start()
        scene.subscribers["late"].start()
        scene.becomes("live", application="late")
        with scene.locked():  # while its first chunk is read
            change("late", "backfill_start")
            until(scene.waiting, "the chunk is not asked for")
            change("late", "backfill_pause")
            assert scene.backfill("late").state == "paused"
        change("early", "backfill_start")
        scene.await_done("early", 2)
        change("late", "backfill_resume")
        scene.await_done("late", 2)
    for name in scene.subscribers:
        until(lambda name=name: scene.is_equal(name), f"{name} does not equal the table, seed {SEED}")  # type: ignore[misc]
    assert scene.publisher.history() == ["backfill-start", "backfill-pause", "backfill-start", "backfill-resume"]


@pytest.mark.parametrize("scene", [(dict.fromkeys(("one", "two", "three"), "existing"), MANY)], ids=[""], indirect=True)
def test_three_applications_that_join_together_cost_one_scan(scene: Scene) -> None:
    """Rows of the table that the server read, by its own counter: before the three are live a lock holds the scan."""
    scene.server.sql("SET GLOBAL userstat = 1")

    def rows_read() -> int:
        count = "SELECT rows_read FROM information_schema.table_statistics"
        found = scene.server.sql(f"{count} WHERE table_schema = '{scene.database}' AND table_name = 'users'")
        return int(found[0][0]) if found else 0

    with scene.locked():
        before = rows_read()
        for process in (*scene.subscribers.values(), scene.publisher):
            process.start()
        for name in scene.subscribers:
            scene.becomes("live", application=name)
        # A chunk that was asked for before all were there is not for all.
        asked = scene.waiting()
        until(lambda: scene.waiting() > asked, "the chunk is not asked for anew")
        assert rows_read() == before
    for name in scene.subscribers:
        scene.await_done(name)
    read = rows_read() - before
    assert MANY <= read <= MANY + TWO_CHUNKS, f"the server read {read} rows"
    for name in scene.subscribers:
        assert reads(scene.copy(name)) >= MANY
        assert scene.is_equal(name)
