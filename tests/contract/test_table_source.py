"""The contract of existing rows (:mod:`wormhole.ports.testing.table_contract`) over each source of this repository."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.databases import DatabaseServer, start_server
from tests.support.table_source_harness import (
    DatabaseTablesHarness,
    MemoryTablesHarness,
    PostgresTablesHarness,
    RocksTablesHarness,
)
from wormhole.ports.testing.contract import MakeHarness
from wormhole.ports.testing.table_contract import TableSourceContract


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    """The database servers by flavour: to start one for each test would take seconds each time."""
    started: dict[str, DatabaseServer] = {}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture(params=["memory", "rocksdb", "mariadb", "mysql", "postgres"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path, servers: dict[str, DatabaseServer]) -> MakeHarness:
    if request.param == "memory":
        return MemoryTablesHarness
    if request.param == "rocksdb":
        return partial(RocksTablesHarness, tmp_path)
    if request.param == "postgres":
        return partial(PostgresTablesHarness, request.getfixturevalue("contract_postgres"), tmp_path)
    if request.param not in servers:
        servers[request.param] = start_server(request.param)
    return partial(DatabaseTablesHarness, servers[request.param], tmp_path)


class TestTableSource(TableSourceContract):
    pass
