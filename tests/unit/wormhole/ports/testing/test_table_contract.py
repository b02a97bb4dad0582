"""Tables that break the contract fail it, with a message that says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastores.memory.tables import MemoryTables
from tests.support.table_source_harness import MemoryTablesHarness
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.ports.testing.table_contract import TableSourceContract

CONTRACT = TableSourceContract()


class Late(MemoryTables):
    """A snapshot that shows a commit later than the log, between two positions of the log."""

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        self.visible = replace(not_before, delivered=str(max(1, int(not_before.delivered) - 1)))
        high = self._source.latest().delivered
        return replace(super().chunk(table, after, until, limits, self.visible), high=high)


class Early(MemoryTables):
    """The log's position from before the snapshot."""

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        return replace(super().chunk(table, after, until, limits, not_before), high=not_before.delivered)


class Inclusive(MemoryTables):
    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        chunk = super().chunk(table, after, until, limits, not_before)
        first = {} if after is None else self.rows(table, [after], not_before).rows
        return replace(chunk, rows={**first, **chunk.rows})


class Doubtful(MemoryTables):
    """Never done before it looked again."""

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        return replace(super().chunk(table, after, until, limits, not_before), done=False)


def over(kind: type[MemoryTables]) -> MemoryTablesHarness:
    harness = MemoryTablesHarness(Sharding("log"))
    harness.memory = harness.source = type(harness.memory)("log")
    harness.tables = harness.memory_tables = kind(harness.memory)
    return harness


@pytest.mark.parametrize("kind", [Late, Early])
def test_a_snapshot_outside_its_positions(kind: type[MemoryTables]) -> None:
    with pytest.raises(AssertionError, match="at no place between not_before and high"):
        CONTRACT.test_a_chunk_is_one_snapshot_between_not_before_and_high(over(kind))


def test_a_range_that_is_not_exact() -> None:
    with pytest.raises(AssertionError, match=r"rows above 0 up to None of \d+; 4 is deleted"):
        CONTRACT.test_after_and_until_are_exact(over(Inclusive))


def test_a_chunk_that_goes_nowhere() -> None:
    with pytest.raises(AssertionError, match="a chunk that is not done"):
        CONTRACT.test_chunks_cover_every_row_once_in_order(over(Doubtful))
