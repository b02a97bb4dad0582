"""Sources that break the contract fail it, with a message that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from datastores.memory.source import MemorySource
from tests.support.log_source_harness import MemoryHarness
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.log_source import LogReader
from wormhole.ports.testing.contract import Change, LogSourceContract

CONTRACT = LogSourceContract()


class Lossy(MemoryHarness):
    def commit(self, changes: Sequence[Change]) -> None:
        super().commit(changes[:3])


class Doubling(MemoryHarness):
    def commit(self, changes: Sequence[Change]) -> None:
        super().commit([*changes, changes[-1]])


class FromTheBeginning(MemorySource):
    def open(self, marker: Datamarker) -> LogReader:  # type: ignore[override]
        return super().open(self.earliest())


class Careless(MemorySource):
    def _compare(self, marker: Datamarker) -> None:
        pass


def over(source: MemorySource) -> MemoryHarness:
    harness = MemoryHarness(Sharding("log"))
    harness.memory = harness.source = source
    return harness


@pytest.mark.parametrize("harness", [Lossy(Sharding("log")), Doubling(Sharding("log"))])
def test_updates_that_are_lost_or_come_twice(harness: MemoryHarness) -> None:
    with pytest.raises(AssertionError, match="an update is missing, comes twice, or is out of commit order"):
        CONTRACT.test_everything_once_in_commit_order(harness)


def test_a_reader_that_resumes_at_another_position() -> None:
    with pytest.raises(AssertionError, match=r"a segment begins at 1/1/0 and not at .*, where the one before ended"):
        CONTRACT.test_a_reader_opened_at_a_marker_begins_with_the_next_transaction(over(FromTheBeginning()))


def test_an_anchor_that_is_not_compared() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"DID NOT RAISE.*Diverged"):
        CONTRACT.test_another_anchor_is_another_log(over(Careless()))
