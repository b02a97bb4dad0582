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

PAIRS = ("postgres-mariadb", "mariadb-postgres", "postgres-duckdb", "mysql-sqlite")


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
    publisher, sink = mirrored.publisher, mirrored.sink
    publisher.start()
    sink.start()
    with mirrored.load.running():
        until(lambda: mirrored.flow().backfill.state == "done", mirrored.story)
        for victims in ([sink], [publisher], [sink], [sink, publisher]):
            mirrored.moves()
            for victim in victims:
                victim.kill()
            for victim in victims:
                victim.start()
        mirrored.moves()
        publisher.change(APPLICATION, "backfill_start")
        until(lambda: mirrored.flow().backfill.state != "done", mirrored.story)
        sink.kill()
        sink.start()
        until(lambda: mirrored.flow().backfill.state == "done", mirrored.story)
        mirrored.moves()
    say(f"  seed {SEED}: {mirrored.load.transactions} transactions, {mirrored.load.altered}")
    if isinstance(mirrored.target, FileTarget):  # a DuckDB file has one process
        report = _verified(mirrored)
        until(lambda: mirrored.flow().lag_transactions == 0, mirrored.story)
        sink.kill()
    until(lambda: not mirrored.differing(), lambda: f"seed {SEED}: {mirrored.differing()} {mirrored.story()}")
    if not isinstance(mirrored.target, FileTarget):
        report = _verified(mirrored)
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
