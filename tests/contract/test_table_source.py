"""The contract of existing rows (:mod:`wormhole.ports.testing.table_contract`) over each source of this repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from datastores.mysql.existing_rows import snapshot
from tests.support.sqlite_harness import SqliteTablesHarness
from tests.support.table_source_harness import (
    CaptureTablesHarness,
    DatabaseTablesHarness,
    MemoryTablesHarness,
    PostgresTablesHarness,
    RocksTablesHarness,
)
from wormhole.ports.testing.contract import MakeHarness
from wormhole.ports.testing.table_contract import TableHarness, TableSourceContract


@pytest.fixture(params=["memory", "rocksdb", "sqlite", "mariadb", "mysql", "postgres", "postgres-capture"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHarness:
    if request.param == "memory":
        return MemoryTablesHarness
    if request.param == "rocksdb":
        return partial(RocksTablesHarness, tmp_path)
    if request.param == "sqlite":
        return partial(SqliteTablesHarness, tmp_path)
    server = request.getfixturevalue(f"{request.param.partition('-')[0]}_server")
    kinds = {"postgres": PostgresTablesHarness, "postgres-capture": CaptureTablesHarness}
    return partial(kinds.get(request.param, DatabaseTablesHarness), server, tmp_path)


class TestTableSource(TableSourceContract):
    def test_what_is_not_shown_yet_is_asked_for_again(self, tables: TableHarness) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(snapshot, "_PATIENCE_S", 0.5)
            super().test_what_is_not_shown_yet_is_asked_for_again(tables)
