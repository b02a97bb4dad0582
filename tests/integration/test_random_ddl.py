"""Random DDL of each server with rows between: a copy that follows the log equals ``SELECT``, or it is reported.

``WORMHOLE_ROUNDS`` is how many scripts each server executes, ``WORMHOLE_SEED`` the first one's seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import pytest

from tests.support.databases import DatabaseServer
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.random_ddl import MARIADB, MYSQL, POSTGRES, Round
from tests.support.seed import SEED
from tests.support.table_scene import TableScene

ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "1"))
STEPS: Final = 60 if "WORMHOLE_ROUNDS" in os.environ else 30
_SEEDS: Final = pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))


@_SEEDS
def test_postgres(postgres_of_each: PostgresServer, seed: int) -> None:
    with (
        new_database(postgres_of_each) as database,
        PostgresScene(postgres_of_each, database, user="postgres") as scene,
    ):
        one = Round(scene, POSTGRES, "s", seed, scene.sql)
        assert one.go(STEPS) == [], f"WORMHOLE_SEED={seed}"
    assert one.reported or ROUNDS > 1  # some seeds draw nothing that has to be reported


@_SEEDS
def test_mysql_and_mariadb(database_server: DatabaseServer, seed: int, request: pytest.FixtureRequest) -> None:
    name, flavour = f"ddl_{seed}", database_server.flavour
    sql: Callable[..., object] = database_server.sql
    request.addfinalizer(lambda: sql(f"DROP DATABASE IF EXISTS {name}"))
    with TableScene(database_server) as scene:
        one = Round(scene, MARIADB if flavour == "mariadb" else MYSQL, name, seed, sql)
        assert one.go(STEPS) == [], f"WORMHOLE_SEED={seed}"
    assert one.reported or ROUNDS > 1
