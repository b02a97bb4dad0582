"""``start = "existing"`` and backfills with real processes: the application's copy equals the server's table at the
end, whatever was written, and killed with ``kill -9``, on the way."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.seed import SEED
from tests.system.harness.copying import copied, reads
from tests.system.harness.processes import Process
from wormhole.model.errors import StreamBroken
from wormhole.wire.v1 import admin_pb2

KILLS = min(20, int(os.environ.get("WORMHOLE_ROUNDS", "3")))
ROWS = 4_000
MANY = 60_000  # one chunk is a small part of them: the server may read all and send a part of the first
_ALTER = 200  # writes between two of them


def _key(number: int) -> str:
    return f"Kéy-{number:05}"


class Scene:
    """A table ``value`` by text keys, its publisher, and one subscriber of each application. ``starts``: of each."""

    def __init__(
        self, server: DatabaseServer, folder: Path, starts: Mapping[str, str], rows: int = ROWS, rate: str = "1MiB/s"
    ) -> None:
        self.server, self.folder = server, folder
        self.database = f"rows_{os.getpid()}_{folder.name[-12:]}".replace("-", "_")
        self.table = f"{self.database}.users"
        server.sql(
            f"CREATE DATABASE {self.database}",
            f"CREATE TABLE {self.table} (id VARCHAR(40) PRIMARY KEY, value VARCHAR(200)) CHARACTER SET utf8mb4",
        )
        for first in range(0, rows, 500):
            values = ",".join(f"('{_key(number)}', '{'v' * 80}')" for number in range(first, first + 500))
            server.sql(f"INSERT INTO {self.table} VALUES {values}")
        ports = {name: free_port() for name in starts}
        applications = "\n".join(
            f"""[applications.{name}]
dataset = "shop"
start = "{starts[name]}"
tables = ["{self.table}"]
subscribers = {{ {name}-1 = "127.0.0.1:{port}" }}"""
            for name, port in ports.items()
        )
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        # So little that the table comes in dozens of chunks.
        dataset = 'caravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { memory = "4MiB" }'
        settings = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"'
        self.publisher = PublisherProcess(folder, source, applications, publisher=settings, dataset=dataset)
        self.subscribers = {}
        for name in ports:
            given = {
                "application": name,
                "copy": str(self.copy(name)),
                "options": {"id": f"{name}-1", "coordinator": str(self.publisher.config)},
            }
            self.subscribers[name] = Process(name, ["-m", "tests.system.harness.copying", json.dumps(given)], folder)

    def copy(self, application: str) -> Path:
        return self.folder / f"{application}.sqlite"

    def is_equal(self, application: str) -> bool:
        there: dict[str, str] = dict(self.server.sql(f"SELECT id, value FROM {self.table}"))
        return copied(self.copy(application), self.table) == there

    def backfill(self, application: str) -> admin_pb2.BackfillStatus:
        try:
            flow = self.publisher.flow(application)
        except StreamBroken:
            flow = None  # it is asked again: it was killed a moment ago, or the machine is busy
        return admin_pb2.BackfillStatus() if flow is None else flow.backfill

    def close(self) -> None:
        for process in (self.publisher, *self.subscribers.values()):
            process.kill()
        self.server.sql(f"DROP DATABASE {self.database}")


class Writes:
    """Changes of random rows for as long as the block lasts: each kind of change, in small transactions, and ALTERs."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        table, number = self._scene.table, 0
        connection = self._scene.server.connect()
        with connection, connection.cursor() as cursor:
            while not self._ends.wait(0.005):
                number += 1
                key, other = (_key(self._chance.randrange(ROWS + 500)) for _ in range(2))
                if number % _ALTER == 0:
                    # With a default it would change the rows that were sent: the backfill would begin again.
                    what = "ADD COLUMN more INT FIRST" if number % (2 * _ALTER) else "DROP COLUMN more"
                    cursor.execute(f"ALTER TABLE {table} {what}")
                match self._chance.randrange(4):
                    case 0:
                        cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
                    case 1:
                        cursor.execute(f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (other, key))
                    case 2:
                        cursor.execute(f"UPDATE {table} SET value = %s WHERE id = %s", (f"u{number}", key))
                    case _:
                        cursor.execute(f"REPLACE INTO {table} (id, value) VALUES (%s, %s)", (key, f"r{number}"))


@pytest.fixture
def flavour() -> str:
    return "mariadb"


@pytest.fixture
def scene(database_server: DatabaseServer, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(database_server, tmp_path, {"early": "existing", "late": "latest"})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def three(database_server: DatabaseServer, tmp_path: Path) -> Iterator[Scene]:
    starts = dict.fromkeys(("one", "two", "three"), "existing")
    made = Scene(database_server, tmp_path, starts, MANY)
    try:
        yield made
    finally:
        made.close()


def test_the_copy_equals_the_table_whatever_was_killed(scene: Scene) -> None:
    chance = random.Random(SEED)
    early, copy = scene.subscribers["early"], scene.copy("early")
    scene.publisher.start()
    early.start()
    with Writes(scene, chance):
        for kill in range(KILLS):
            before = reads(copy)
            until(
                lambda before=before: reads(copy) > before or scene.backfill("early").state == "done",  # type: ignore[misc]
                lambda: f"rows come, seed {SEED}: {scene.publisher.tail()}",
            )
            victim = early if kill % 3 == 2 else scene.publisher
            victim.kill()
            victim.start()
        until(lambda: scene.backfill("early").state == "done", lambda: f"done: {scene.backfill('early')}")
    until(lambda: scene.is_equal("early"), f"the copy equals the table, seed {SEED}")
    assert scene.backfill("early").generation == 1
    assert reads(copy) > 0.5 * ROWS


def test_an_operator_starts_pauses_and_resumes_beside_another_application(scene: Scene) -> None:
    chance, change = random.Random(SEED), scene.publisher.change
    scene.publisher.start()
    for subscriber in scene.subscribers.values():
        subscriber.start()
    with Writes(scene, chance):
        until(lambda: (flow := scene.publisher.flow("late")) is not None and flow.state == "live", "both are live")
        change("late", "backfill_start")
        until(lambda: reads(scene.copy("late")), "rows come")
        change("late", "backfill_pause")
        assert scene.backfill("late").state == "paused"
        until(lambda: scene.backfill("early").state == "done", "the other one is done")
        change("late", "backfill_resume")
        until(lambda: scene.backfill("late").state == "done", "done")
    for name in scene.subscribers:
        until(lambda name=name: scene.is_equal(name), f"{name} equals the table, seed {SEED}")  # type: ignore[misc]
    assert scene.publisher.history() == ["backfill-start", "backfill-pause", "backfill-resume"]


def test_deletes_that_an_application_missed_converge(scene: Scene) -> None:
    """A backfill is the repair of a loss: rows that are gone from the table go from the copy."""
    scene.publisher.start()
    scene.subscribers["early"].start()
    until(lambda: scene.backfill("early").state == "done", "done")
    scene.subscribers["early"].stop()
    scene.server.sql("SET sql_log_bin = 0", f"DELETE FROM {scene.table} WHERE id < 'Kéy-00100'")
    scene.subscribers["early"].start()
    until(lambda: (flow := scene.publisher.flow("early")) is not None and flow.state == "live", "live again")
    assert not scene.is_equal("early")
    scene.publisher.change("early", "backfill_start")
    until(lambda: scene.backfill("early").state == "done", "done again")
    until(lambda: scene.is_equal("early"), "the copy equals the table")


def test_three_applications_that_join_together_cost_one_scan(three: Scene) -> None:
    """Rows of the table that the server read, by its own counter: before the three are live a lock holds the scan."""
    three.server.sql("SET GLOBAL userstat = 1")

    def rows_read() -> int:
        count = "SELECT rows_read FROM information_schema.table_statistics"
        found = three.server.sql(f"{count} WHERE table_schema = '{three.database}' AND table_name = 'users'")
        return int(found[0][0]) if found else 0

    def waiting() -> int:
        """Number of the newest statement that waits for the lock."""
        newest = "SELECT MAX(query_id) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        return int(three.server.sql(newest)[0][0] or 0)

    def all_live() -> bool:
        flows = [three.publisher.flow(name) for name in three.subscribers]
        return all(flow is not None and flow.state == "live" for flow in flows)

    locked = three.server.connect()
    with locked, locked.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {three.table} WRITE")
        before = rows_read()
        for subscriber in three.subscribers.values():
            subscriber.start()
        three.publisher.start()
        until(all_live, lambda: f"all are live: {three.publisher.tail()}")
        # A chunk that was asked for before all were there is not for all.
        asked = waiting()
        until(lambda: waiting() > asked, "the chunk is asked for anew")
        assert rows_read() == before
        cursor.execute("UNLOCK TABLES")
        until(lambda: all(three.backfill(name).state == "done" for name in three.subscribers), "all are done")
    read = rows_read() - before
    assert MANY <= read <= 1.1 * MANY, f"the server read {read} rows"
    for name in three.subscribers:
        assert reads(three.copy(name)) >= MANY
        assert three.is_equal(name)


@pytest.mark.soak
def test_three_applications_that_join_at_different_times(three: Scene) -> None:
    """While everything is killed and the table is altered."""
    chance, joined = random.Random(SEED), list[str]()

    def rows_sent() -> int:
        return sum(reads(three.copy(name)) for name in joined)

    def all_done() -> bool:
        return all(three.backfill(name).state == "done" for name in joined)

    three.publisher.start()
    with Writes(three, chance):
        for kill in range(KILLS):
            if kill * len(three.subscribers) // KILLS == len(joined):
                joined.append(list(three.subscribers)[len(joined)])
                three.subscribers[joined[-1]].start()
            before = rows_sent()
            until(
                lambda before=before: rows_sent() > before or all_done(),  # type: ignore[misc]
                lambda: f"rows come, seed {SEED}: {three.publisher.tail()}",
            )
            victims = [three.publisher, *([three.subscribers[chance.choice(joined)]] if kill % 3 == 2 else ())]
            for victim in victims:
                victim.kill()
            for victim in victims:
                victim.start()
        until(all_done, lambda: f"done, seed {SEED}: {three.publisher.tail()}")
    assert len(joined) == len(three.subscribers)
    for name in joined:
        until(lambda name=name: three.is_equal(name), f"the copy of {name} equals the table, seed {SEED}")  # type: ignore[misc]
