"""Databases whose changes triggers record, under what works on a log: relay, filters, archive, verify."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.table_copy import from_text
from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.capture_harness import as_owner, capture_url
from tests.support.capture_harness import install as install_capture
from tests.support.eventually import until
from tests.support.marked import MARK
from tests.support.postgres_server import PostgresServer
from tests.support.seed import SEED
from tests.support.sqlite_harness import install
from tests.system.harness.archive_rows import rows
from tests.system.harness.up import Up

_ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "3"))
_TABLE = "CREATE TABLE {} (k integer PRIMARY KEY, v integer)"
_APPLICATIONS = """
[applications.some]
dataset = "shop"
start = "earliest"
where = 'k < 20'
[applications.archive]
dataset = "shop"
start = "earliest"
[datasets.shop.archive]
to = "archive"
flush_every = "200ms"
"""
_COPY = (
    "import sys; from examples.table_copy import TableCopy, run; run(TableCopy(sys.argv[1]), application=sys.argv[2])"
)

Run = Callable[..., list[tuple[Any, ...]]]


@contextmanager
def sqlite(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Run]]:
    path = folder / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(_TABLE.format("t"))
        install(path)

        def run(*statements: str) -> list[tuple[Any, ...]]:
            with writer:
                writer.execute("BEGIN IMMEDIATE")
                for statement in statements:
                    found = writer.execute(statement).fetchall()
            return found

        yield f'source = "sqlite://{path}"', "t", run


@contextmanager
def postgres(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Run]]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database: str = request.getfixturevalue("postgres_database")
    as_owner(server, database, "CREATE SCHEMA shop", _TABLE.format("shop.t"))
    install_capture(server, database, "shop.*")

    def run(*statements: str) -> list[tuple[Any, ...]]:
        return server.sql("; ".join(statements), database=database)

    yield f'source = "{capture_url(server, database)}"\npassword_file = "{server.password_file}"', "shop.t", run


def transaction(chance: random.Random, table: str) -> list[str]:
    """Upserts, deletes, and changes of keys."""
    found = []
    for _ in range(chance.randint(1, 4)):
        key, value = chance.randrange(40), chance.randrange(1000)
        free = f"NOT EXISTS (SELECT 1 FROM {table} WHERE k = {key + 100})"
        found.append(
            chance.choice(
                (
                    f"INSERT INTO {table} VALUES ({key}, {value}) ON CONFLICT (k) DO UPDATE SET v = {value}",
                    f"DELETE FROM {table} WHERE k = {key}",
                    f"UPDATE {table} SET k = {key + 100} WHERE k = {key} AND {free}",
                )
            )
        )
    return found


def copied(path: Path) -> dict[int, int]:
    """The rows of a copy."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as database, suppress(sqlite3.OperationalError):
        found = [from_text(row) for (row,) in database.execute("SELECT row FROM rows")]
        return {row["k"]: row["v"] for row in found}
    return {}


def archived(store: ArchiveStore) -> dict[int, int]:
    """What is left when the archive's updates are applied."""
    found: dict[Any, Any] = {}
    for shard, manifest in store.manifests().items():
        for file in manifest.files:
            for update in rows(store, shard, file.name):
                found.pop((update.old_key or update.key)[0], None)
                if update.after is not None:
                    found[update.key[0]] = update.after["v"]
    return found


@pytest.mark.parametrize("database", [sqlite, postgres])
def test_copies_and_archive_equal_the_table_although_processes_are_killed(
    database: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(SEED)
    print("seed", SEED)
    with database(tmp_path, request) as (source, table, run), closing(Up(tmp_path, f'{source}\nrelay = "cache"')) as up:
        up.file.write_text(up.file.read_text() + _APPLICATIONS)
        processes: dict[str, subprocess.Popen[bytes]] = {}

        def start(name: str) -> None:
            command = ["-c", _COPY, str(tmp_path / f"{name}.db"), name]
            if name == "archive":
                command = ["-m", "wormholectl", "archive", "run", "-c", str(up.file)]
            environment = {**os.environ, MARK: up.mark, "WORMHOLE_COORDINATOR": str(up.file)}
            processes[name] = subprocess.Popen([sys.executable, *command], env=environment, cwd=tmp_path)

        def table_rows(where: str = "") -> dict[int, int]:
            return dict(run(f"SELECT k, v FROM {table}{where}"))

        def arrived() -> bool:
            return (
                copied(tmp_path / "cache.db") == table_rows()
                and copied(tmp_path / "some.db") == table_rows(" WHERE k < 20")
                and archived(store) == table_rows()
            )

        code, text = up.up()
        assert code == 0, text
        store = open_store(str(tmp_path / "archive"), "shop", copy="main", create=True)
        for name in ("cache", "some", "archive"):
            start(name)
        for round_ in range(_ROUNDS):
            killed = chance.choice(["publisher", *processes])
            for n in range(40):
                run(*transaction(chance, table))
                if n == 20 and killed == "publisher":
                    pid = up.publisher()
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)  # the monitor starts it again
                elif n == 20:
                    processes[killed].kill()
                    processes[killed].wait()
            if killed != "publisher":
                start(killed)
            until(arrived, f"round {round_}: {killed} was killed, and the copies differ from the table")
        code, text = up.does("verify", "cache", "-c", str(up.file), "--yes", "--json")
        assert code == 0, text
        assert list(up.folder.glob("**/relay/*")), "the relay recorded nothing"
        for process in processes.values():
            process.terminate()
            process.wait()
        assert up.down()[0] == 0
