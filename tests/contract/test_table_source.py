"""The contract of existing rows (:mod:`wormhole.ports.testing.table_contract`) over each source of this repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.table_source_harness import MemoryTablesHarness
from wormhole.ports.testing.contract import MakeHarness
from wormhole.ports.testing.table_contract import TableSourceContract


@pytest.fixture(params=["memory"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHarness:
    return MemoryTablesHarness


class TestTableSource(TableSourceContract):
    pass
