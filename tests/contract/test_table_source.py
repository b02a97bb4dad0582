"""The contract of existing rows (:mod:`wormhole.ports.testing.table_contract`) over each source of this repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.table_source_harness import MemoryTablesHarness, RocksTablesHarness
from wormhole.ports.testing.contract import MakeHarness
from wormhole.ports.testing.table_contract import TableSourceContract


@pytest.fixture(params=["memory", "rocksdb"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHarness:
    return MemoryTablesHarness if request.param == "memory" else partial(RocksTablesHarness, tmp_path)


class TestTableSource(TableSourceContract):
    pass
