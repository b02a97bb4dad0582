"""A SQL mirror under random load, with DDL, changes of keys, TRUNCATE, a backfill in the middle and ``kill -9``: it
equals its source, by our verification and by a comparison that uses no code of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import start_server
from tests.support.eventually import until
from tests.support.postgres_server import NewPostgres
from tests.support.seed import SEED
from tests.system.harness.mirrored import APPLICATION, FileTarget, Load, Mirrored, MySqlSide, PostgresSide

PAIRS = (
    "postgres-mariadb",
    "mariadb-postgres",
    pytest.param("postgres-mysql", marks=pytest.mark.soak),
    pytest.param("postgres-duckdb", marks=pytest.mark.soak),
    pytest.param("mysql-sqlite", marks=pytest.mark.soak),
)


def _side(kind: str, database: str, folder: Path, new_postgres: NewPostgres, closing: list[Any]) -> Any:
    if kind == "postgres":
        return PostgresSide(new_postgres(), database)
    if kind in ("sqlite", "duckdb"):
        return FileTarget(kind, folder / f"target.{kind}")
    server = start_server(kind)
    closing.append(server)
    return MySqlSide(server, database)


@pytest.fixture(params=PAIRS)
def mirrored(request: pytest.FixtureRequest, new_postgres: NewPostgres, tmp_path: Path) -> Iterator[Mirrored]:
    source, target = request.param.split("-")
    servers: list[Any] = []
    load = Load(_side(source, "shop", tmp_path, new_postgres, servers), random.Random(SEED))
    made = Mirrored(tmp_path, load, _side(target, "copied", tmp_path, new_postgres, servers))
    yield made
    made.close()
    for server in servers:
        server.close()


def test_a_mirror_equals_its_source_whatever_happened(mirrored: Mirrored, say: Callable[[str], None]) -> None:
    publisher, sink, load = mirrored.publisher, mirrored.sink, mirrored.load
    publisher.start()
    sink.start()
    with load.running():
        until(lambda: mirrored.backfilled(1), mirrored.story)
        for victims in ([sink], [publisher], [sink, publisher]):
            mirrored.moves()
            for victim in victims:
                victim.kill()
            for victim in victims:
                victim.start()
        mirrored.moves()
        before = mirrored.flow().backfill.generation
        publisher.change(APPLICATION, "backfill_start")
        until(lambda: mirrored.flow().backfill.generation > before, mirrored.story)
        sink.kill()
        sink.start()
        until(lambda: mirrored.backfilled(before + 1), mirrored.story)
        mirrored.moves()
    load.alter_rows()
    with load.running():
        mirrored.moves()
        before = mirrored.flow().backfill.generation
        publisher.change(APPLICATION, "backfill_start")
        until(lambda: mirrored.backfilled(before + 1), mirrored.story)
    say(f"  seed {SEED}: {load.transactions} transactions, {load.altered}")
    report = _verified(mirrored)
    until(lambda: mirrored.flow().lag_transactions == 0, mirrored.story)
    if isinstance(mirrored.target, FileTarget):  # a DuckDB file has one process
        sink.kill()
    until(lambda: not mirrored.differing(), lambda: f"seed {SEED}: {mirrored.differing()} {mirrored.story()}")
    assert report == {}


def _verified(mirrored: Mirrored) -> dict[str, Any]:
    _, out, err = mirrored.ctl("verify", APPLICATION, "--yes", "--json")
    assert out, err
    found = {}
    for flow in json.loads(out.splitlines()[-1])["flows"]:
        for table in flow["backfill"]["verified"]:
            if table["differs"] or table["missing"] or table["extra"]:
                found[table["table"]] = table
    return found
