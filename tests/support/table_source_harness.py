"""The harnesses of this repository's tables, for :mod:`wormhole.ports.testing.table_contract`."""

from __future__ import annotations

from publisher.sources.memory.tables import MemoryTables
from tests.support.log_source_harness import MemoryHarness
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.table_contract import TableHarness

__all__ = ["MemoryTablesHarness"]


class MemoryTablesHarness(MemoryHarness, TableHarness):
    """The tables of a memory log."""

    shardings = (*TableHarness.shardings, Sharding("database"))

    def __init__(self, sharding: Sharding) -> None:
        super().__init__(sharding)
        self.memory_tables = self.tables = MemoryTables(self.memory)

    def reopen_tables(self) -> None:
        self.tables.close()  # they are the datastore too

    def drop(self, name: str) -> None:
        self.memory_tables.drop(name)
