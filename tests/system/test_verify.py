"""``wormholectl verify`` and ``repair`` with real processes: what differs is found and named while writes go on, only
that is repaired, and after a loss of log the application's copy equals the table."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.databases import NewServer, purge
from tests.support.eventually import until
from tests.support.seed import SEED
from tests.system.harness.comparing import fill, touched
from tests.system.harness.copied_table import CopiedTable, changing
from tests.system.harness.copying import reads

ROWS = 1_000_000 if int(os.environ.get("WORMHOLE_ROUNDS", "3")) >= 100 else 4_000
_VALUE = "v" * 40


def key(number: int) -> str:
    return f"Kéy-{number:07}"


_FLIPPED, _ADDED = key(7), "Kéy-added"


def named(of: str) -> str:
    """As an operator reads it."""
    return f"shop.users:{quote(of)}"


class Scene(CopiedTable):
    """A table of ``rows`` rows on a MariaDB server, and the application ``app`` with a copy of it."""

    def __init__(
        self, server: DatabaseServer, folder: Path, rows: int, *, verifies: bool = True, rate: str = "1GiB/s"
    ) -> None:
        self.server, self.count, table = server, rows, "shop.users"
        server.sql(
            "CREATE DATABASE shop",
            f"CREATE TABLE {table} (id VARCHAR(40) PRIMARY KEY, value VARCHAR(200)) CHARACTER SET utf8mb4",
            f"SET SESSION max_recursive_iterations = {rows + 1}",
            f"INSERT INTO {table} WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n "
            f"WHERE i < {rows - 1}) SELECT CONCAT('Kéy-', LPAD(i, 7, '0')), '{_VALUE}' FROM n",
        )
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        dataset = f'shard_by = "log"\nexisting_rows = {{ rate = "{rate}" }}'
        program = "comparing" if verifies else "copying"
        super().__init__(folder, table, source, dataset, {"app": "latest"}, program)
        self.subscriber = self.subscribers["app"]
        fill(self.copy(), table, ((key(number), _VALUE) for number in range(rows)))

    def rows(self) -> dict[str, str]:
        return dict(self.server.sql(f"SELECT id, value FROM {self.table}"))

    def start(self) -> None:
        self.publisher.start()
        self.subscriber.start()
        self.becomes("live")

    def changing(self) -> AbstractContextManager[None]:
        """Rows of the upper half are changed for as long as the block lasts."""
        chance = random.Random(SEED)
        connection, one = self.server.connect(), lambda: key(chance.randrange(self.count // 2, self.count))
        return changing(connection, "mariadb", self.table, chance, one)

    def quiet(self) -> set[str]:
        """The keys that nobody changes meanwhile."""
        return {key(number) for number in range(self.count // 2)} | {_ADDED}

    def spoil(self, deleted: str) -> None:
        """One row of the copy is changed, one deleted and one added behind the application's back."""
        self.damage("UPDATE rows SET value = 'flipped' WHERE key = ?", _FLIPPED)
        self.damage("DELETE FROM rows WHERE key = ?", deleted)
        self.damage("INSERT INTO rows VALUES (?, ?, 0, 'added')", self.table, _ADDED)
        self.forget_touched()

    def forget_touched(self) -> None:
        self.damage("DELETE FROM touched")

    def compared(self) -> int:
        """Rows that the present publisher compared."""
        return sum(table.compared for table in self.backfill().verified)

    def in_the_middle(self) -> int:
        """Rows that it compared by now; 0 when that is less than a sixth of the table or more than most of it."""
        compared = self.compared()
        return compared if self.count // 6 < compared < self.count - self.count // 6 else 0


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
    deleted = key(scene.count // 3)
    with scene.changing():
        began = time.monotonic()
        code, out, err = scene.ctl("verify", "app", "--yes", "--json")
        say(f"verify: {ROWS:,} rows compared in {time.monotonic() - began:.1f} s, seed {SEED}")
        assert code == 0, out + err

        scene.spoil(deleted)

        code, out, err = scene.ctl("verify", "app", "--yes", "--json")
        found = verified(out)
        assert (code, found["differs"], found["missing"], found["extra"]) == (1, 1, 1, 1), out + err
        differences = found["differences"]
        assert isinstance(differences, list)
        assert {(one["kind"], one["key"], tuple(one["columns"])) for one in differences} == {
            ("differs", named(_FLIPPED), ("value",)),
            ("missing", named(deleted), ()),
            ("extra", named(_ADDED), ()),
        }
        assert not touched(scene.copy()) & scene.quiet(), "comparing writes nothing"
        assert reads(scene.copy()) == 0

        began = time.monotonic()
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--json")
        say(f"verify --repair: {time.monotonic() - began:.1f} s")
        assert code == 0, out + err
        found = verified(out)
        assert (found["repaired"], found["removed"]) == (2, 1)
        assert touched(scene.copy()) & scene.quiet() == {_FLIPPED, deleted, _ADDED}, "nothing else is touched"
        assert reads(scene.copy()) == 2
    until(scene.is_equal, "the copy equals the table")


def test_a_repair_continues_after_each_process_is_killed(make: Make) -> None:
    """It begins anew each time: which keys the table has is known only to the process that saw them all."""
    scene = make(6_000, rate="160KiB/s")
    scene.start()
    deleted = key(2_000)
    scene.spoil(deleted)
    with scene.changing():
        code, out, err = scene.ctl("verify", "app", "--repair", "--yes", "--background")
        assert code == 0, out + err
        for victim in (scene.publisher, scene.subscriber, scene.publisher):
            before = until(scene.in_the_middle, lambda: f"in the middle: {scene.publisher.tail()}")
            victim.kill()
            victim.start()
            until(lambda before=before: scene.compared() < before, "anew")  # type: ignore[misc]
        scene.await_done(generation=2)
        (table,) = scene.backfill().verified
        assert (table.ended, table.trouble.text) == (True, ""), table
        assert table.differs + table.missing == table.repaired <= 2, "those that no earlier pass came to"
        assert table.extra == table.removed == 1, "it is found when all keys were seen, so in the last pass"
        assert touched(scene.copy()) & scene.quiet() == {_FLIPPED, deleted, _ADDED}
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
    with scene.changing():
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
    assert code == 2, "the question cannot be asked"
    assert out.startswith("app/db1: never delivered: the log begins with ")
    scene.forget_touched()

    code, out, err = scene.ctl("repair", "app/db1", "--yes")

    assert code == 0, out + err
    until(scene.is_equal, "the copy equals the table")
    assert reads(scene.copy()) == (11 if verifies else scene.count - 9)
    assert len(touched(scene.copy())) == (21 if verifies else scene.count + 1)
    scene.becomes("live")
    scene.server.sql(f"INSERT INTO {scene.table} VALUES ('later', 'later')")
    until(scene.is_equal, "changes go on")
