"""The contract of log sources (:mod:`wormhole.ports.testing.contract`) over each source of this repository."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from datastores.postgres.log import reader
from tests.support.databases import DatabaseServer, start_server
from tests.support.log_source_harness import DatabaseHarness, MemoryHarness, RocksHarness
from tests.support.postgres_harness import PostgresHarness
from wormhole.ports.testing.contract import LogSourceContract, MakeHarness


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    """The database servers by flavour: to start one for each test would take seconds each time."""
    started: dict[str, DatabaseServer] = {}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture(params=["memory", "rocksdb", "mariadb", "mysql", "postgres"])
def new_harness(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    servers: dict[str, DatabaseServer],
    monkeypatch: pytest.MonkeyPatch,
) -> MakeHarness:
    if request.param == "memory":
        return MemoryHarness
    if request.param == "rocksdb":
        return partial(RocksHarness, tmp_path)
    if request.param == "postgres":
        # The end of an idle log is behind the last transaction: every reading up to it would wait for that long.
        monkeypatch.setattr(reader, "_IDLE_S", 0.02)
        return partial(PostgresHarness, request.getfixturevalue("contract_postgres"), tmp_path)
    if request.param not in servers:
        servers[request.param] = start_server(request.param)
    return partial(DatabaseHarness, servers[request.param], tmp_path)


class TestLogSource(LogSourceContract):
    pass
