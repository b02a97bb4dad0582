"""The contract of log sources (:mod:`wormhole.ports.testing.contract`) over each source of this repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.capture_harness import CaptureHarness
from tests.support.log_source_harness import DatabaseHarness, MemoryHarness, RocksHarness
from tests.support.postgres_harness import PostgresHarness
from tests.support.sqlite_harness import SqliteHarness
from wormhole.ports.testing.contract import LogSourceContract, MakeHarness


@pytest.fixture(params=["memory", "rocksdb", "sqlite", "mariadb", "mysql", "postgres", "postgres-capture"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHarness:
    if request.param == "memory":
        return MemoryHarness
    if request.param == "rocksdb":
        return partial(RocksHarness, tmp_path)
    if request.param == "sqlite":
        return partial(SqliteHarness, tmp_path)
    server = request.getfixturevalue(f"{request.param.partition('-')[0]}_server")
    if request.param == "postgres-capture":
        return partial(CaptureHarness, server, tmp_path)
    if request.param == "postgres":
        request.getfixturevalue("quick_end")
        return partial(PostgresHarness, server, tmp_path)
    return partial(DatabaseHarness, server, tmp_path)


class TestLogSource(LogSourceContract):
    pass
