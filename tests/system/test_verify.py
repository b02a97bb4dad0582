"""``wormholectl verify`` and ``repair`` with real processes: what differs is found and named while writes go on, only
that is repaired, and after a loss of log the application's copy equals the table."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.command_line import run
from tests.support.databases import NewServer, purge
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.seed import SEED
from tests.system.harness.comparing import fill, touched
from tests.system.harness.copying import copied, opened
from tests.system.harness.processes import Process
from wormhole.wire.v1 import admin_pb2

ROWS = 1_000_000 if int(os.environ.get("WORMHOLE_ROUNDS", "3")) >= 100 else 4_000
_VALUE = "v" * 40


def key(number: int) -> str:
    return f"Kéy-{number:07}"


def named(of: str) -> str:
    """As an operator reads it."""
    return f"shop.users:{quote(of)}"


class Scene:
    """A table ``value`` by text keys of ``rows`` rows, its publisher, and one subscriber with a copy of the table."""

    def __init__(
        self, server: DatabaseServer, folder: Path, rows: int, *, verifies: bool = True, rate: str = "1GiB/s"
    ) -> None:
        self.server, self.table, self.rows, self.copy = server, "shop.users", rows, folder / "copy.sqlite"
        server.sql(
            "CREATE DATABASE shop",
            f"CREATE TABLE {self.table} (id VARCHAR(40) PRIMARY KEY, value VARCHAR(200)) CHARACTER SET utf8mb4",
            f"SET SESSION max_recursive_iterations = {rows + 1}",
            f"INSERT INTO {self.table} WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n "
            f"WHERE i < {rows - 1}) SELECT CONCAT('Kéy-', LPAD(i, 7, '0')), '{_VALUE}' FROM n",
        )
        fill(self.copy, self.table, ((key(number), _VALUE) for number in range(rows)))
        port = free_port()
        application = f"""[applications.app]
dataset = "shop"
start = "latest"
tables = ["{self.table}"]
subscribers = {{ app-1 = "127.0.0.1:{port}" }}"""
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        settings = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "30s"'
        dataset = f'shard_by = "log"\nexisting_rows = {{ rate = "{rate}" }}'
        self.publisher = PublisherProcess(folder, source, application, publisher=settings, dataset=dataset)
        given = {
            "application": "app",
            "copy": str(self.copy),
            "options": {"id": "app-1", "coordinator": str(self.publisher.config)},
        }
        harness = f"tests.system.harness.{'comparing' if verifies else 'copying'}"
        self.subscriber = Process("subscriber", ["-m", harness, json.dumps(given)], folder)

    def start(self) -> None:
        self.publisher.start()
        self.subscriber.start()
        self.becomes("live")

    def backfill(self) -> admin_pb2.BackfillStatus:
        flow = self.publisher.flow("app")
        return admin_pb2.BackfillStatus() if flow is None else flow.backfill

    def becomes(self, state: str, cause: str = "") -> None:
        def so() -> bool:
            flow = self.publisher.flow("app")
            return flow is not None and flow.state == state and cause in flow.cause

        until(so, lambda: f"it is {state}: {self.publisher.flow('app')} {self.publisher.tail()}")

    def damage(self, sql: str, *values: object) -> None:
        """Write to the copy behind the application's back."""
        with closing(opened(self.copy)) as database:
            database.execute(sql, values)

    def forget_touched(self) -> None:
        self.damage("DELETE FROM touched")

    def reads(self) -> int:
        """READ updates that were delivered."""
        with closing(opened(self.copy)) as database:
            return int(database.execute("SELECT count(*) FROM reads").fetchone()[0])

    def compared(self) -> int:
        """Rows that the present publisher compared."""
        return sum(table.compared for table in self.backfill().verified)

    def in_the_middle(self) -> int:
        """Rows that it compared by now; 0 when that is less than a sixth of the table or more than most of it."""
        compared = self.compared()
        return compared if self.rows // 6 < compared < self.rows - self.rows // 6 else 0

    def is_equal(self) -> bool:
        there: dict[str, str] = dict(self.server.sql(f"SELECT id, value FROM {self.table}"))
        return copied(self.copy, self.table) == there

    def ctl(self, *words: str) -> tuple[int, str, str]:
        return run(*words, "-c", str(self.publisher.config))

    def close(self) -> None:
        self.subscriber.kill()
        self.publisher.kill()


class Writes:
    """Changes of rows of the upper half for as long as the block lasts: each kind of change, in small transactions."""

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
        scene, connection = self._scene, self._scene.server.connect()
        with connection, connection.cursor() as cursor:
            for number in itertools.count():
                if self._ends.wait(0.002):
                    return
                one = key(self._chance.randrange(scene.rows // 2, scene.rows))
                other = key(self._chance.randrange(scene.rows // 2, scene.rows))
                match self._chance.randrange(4):
                    case 0:
                        cursor.execute(f"DELETE FROM {scene.table} WHERE id = %s", (one,))
                    case 1:
                        cursor.execute(f"UPDATE IGNORE {scene.table} SET id = %s WHERE id = %s", (other, one))
                    case 2:
                        cursor.execute(f"UPDATE {scene.table} SET value = %s WHERE id = %s", (f"u{number}", one))
                    case _:
                        cursor.execute(f"REPLACE INTO {scene.table} VALUES (%s, %s)", (one, f"r{number}"))


@pytest.fixture
def flavour() -> str:
    return "mariadb"


Make = Callable[..., Scene]


@pytest.fixture
def make(new_server: NewServer, tmp_path: Path) -> Iterator[Make]:
    made: list[Scene] = []

    def scene(rows: int = 2_000, **settings: Any) -> Scene:
        made.append(Scene(new_server(), tmp_path, rows, **settings))
        return made[-1]

    yield scene
    for one in made:
        one.close()


def verified(out: str) -> dict[str, object]:
    """What the last object of ``verify --json`` says of the table."""
    (flow,) = json.loads(out.splitlines()[-1])["flows"]
    (table,) = flow["backfill"]["verified"]
    return dict(table)


def test_what_differs_is_named_and_nothing_else_is_repaired(make: Make, say: Callable[[str], None]) -> None:
    scene = make(ROWS)
    scene.start()
    flipped, deleted, added = key(7), key(scene.rows // 3), "Kéy-added"
    with Writes(scene, random.Random(SEED)):
        began = time.monotonic()
        code, out, err = scene.ctl("verify", "app", "--yes", "--json")
        say(f"verify: {ROWS:,} rows compared in {time.monotonic() - began:.1f} s, seed {SEED}")
        assert code == 0, out + err

        scene.damage("UPDATE rows SET value = 'flipped' WHERE key = ?", flipped)
        scene.damage("DELETE FROM rows WHERE key = ?", deleted)
        scene.damage("INSERT INTO rows VALUES (?, ?, 0, 'added')", scene.table, added)
        scene.forget_touched()

        code, out, err = scene.ctl("verify", "app", "--yes", "--json")
        found = verified(out)
        assert (code, found["differs"], found["missing"], found["extra"]) == (1, 1, 1, 1), out + err
        differences = found["differences"]
        assert isinstance(differences, list)
        assert {(one["kind"], one["key"], tuple(one["columns"])) for one in differences} == {
            ("differs", named(flipped), ("value",)),
            ("missing", named(deleted), ()),
            ("extra", named(added), ()),
        }
        quiet = {key(number) for number in range(scene.rows // 2)} | {added}
        assert not touched(scene.copy) & quiet, "comparing writes nothing"
        assert scene.reads() == 0

        began = time.monotonic()
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--json")
        say(f"verify --repair: {time.monotonic() - began:.1f} s")
        assert code == 0, out + err
        found = verified(out)
        assert (found["repaired"], found["removed"]) == (2, 1)
        assert touched(scene.copy) & quiet == {flipped, deleted, added}, "nothing else is touched"
        assert scene.reads() == 2
    until(scene.is_equal, "the copy equals the table")


def test_a_repair_goes_on_whoever_is_killed(make: Make) -> None:
    """It begins anew each time: which keys the table has is known only to the process that saw them all."""
    scene = make(6_000, rate="160KiB/s")
    scene.start()
    flipped, deleted, added = key(7), key(2_000), "Kéy-added"
    scene.damage("UPDATE rows SET value = 'flipped' WHERE key = ?", flipped)
    scene.damage("DELETE FROM rows WHERE key = ?", deleted)
    scene.damage("INSERT INTO rows VALUES (?, ?, 0, 'added')", scene.table, added)
    scene.forget_touched()
    with Writes(scene, random.Random(SEED)):
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--background")
        assert code == 0, out + err
        for victim in (scene.publisher, scene.subscriber, scene.publisher):
            before = until(scene.in_the_middle, lambda: f"in the middle: {scene.publisher.tail()}")
            victim.kill()
            victim.start()
            until(lambda before=before: scene.compared() < before, "anew")  # type: ignore[misc]
        until(lambda: scene.backfill().state == "done", lambda: f"done: {scene.backfill()}")
        (table,) = scene.backfill().verified
        assert (table.ended, table.trouble.text) == (True, ""), table
        assert table.differs + table.missing == table.repaired <= 2, "those that no earlier pass came to"
        assert table.extra == table.removed == 1, "it is found when all keys were seen, so in the last pass"
        quiet = {key(number) for number in range(scene.rows // 2)} | {added}
        assert touched(scene.copy) & quiet == {flipped, deleted, added}
    until(scene.is_equal, "the copy equals the table")


def test_a_state_folder_from_before_a_repair_does_no_harm(make: Make, tmp_path: Path) -> None:
    scene = make(6_000, rate="160KiB/s")
    scene.start()
    scene.publisher.stop()
    older = tmp_path / "older"
    shutil.copytree(scene.publisher.state, older)
    scene.publisher.start()
    scene.becomes("live")
    scene.damage("UPDATE rows SET value = 'flipped' WHERE key = ?", key(7))
    with Writes(scene, random.Random(SEED)):
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--background")
        assert code == 0, out + err
        until(lambda: scene.compared() > 0, "it runs")
        scene.publisher.kill()
        shutil.rmtree(scene.publisher.state)
        shutil.copytree(older, scene.publisher.state)
        scene.publisher.start()
        scene.becomes("live")
        assert scene.backfill().state == "", "nobody asked for it in that past"
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--json")
        assert code == 0, out + err
    until(scene.is_equal, "the copy equals the table")


@pytest.mark.parametrize("verifies", [True, False], ids=["the application compares", "it does not"])
def test_after_a_purged_range_the_copy_equals_the_table(verifies: bool, make: Make) -> None:
    scene = make(verifies=verifies)
    scene.start()
    scene.subscriber.stop()
    scene.publisher.stop()
    scene.server.sql(
        f"UPDATE {scene.table} SET value = 'changed' WHERE id < '{key(10)}'",
        f"DELETE FROM {scene.table} WHERE id BETWEEN '{key(100)}' AND '{key(109)}'",
        f"INSERT INTO {scene.table} VALUES ('new', 'new')",
        "FLUSH BINARY LOGS",
    )
    purge(scene.server)
    scene.publisher.start()
    scene.subscriber.start()
    scene.becomes("held", "the application halts at a data loss")
    assert "wormholectl repair app/db1" in scene.ctl("why-lag", "app/db1")[1]
    code, out, _ = scene.ctl("repair", "app/db1")
    assert code == 2, "nobody can be asked"
    assert out.startswith("app/db1: never delivered: the log begins with ")
    scene.forget_touched()

    code, out, err = scene.ctl("repair", "app/db1", "--yes")

    assert code == 0, out + err
    until(scene.is_equal, "the copy equals the table")
    assert scene.reads() == (11 if verifies else scene.rows - 9)
    assert len(touched(scene.copy)) == (21 if verifies else scene.rows + 1)
    scene.becomes("live")
    scene.server.sql(f"INSERT INTO {scene.table} VALUES ('later', 'later')")
    until(scene.is_equal, "changes go on")
