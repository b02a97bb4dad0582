"""The state folder of a RocksDB publisher of the release before; test_streams.py reads the log that it kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.continuity import Evidence
from datastores.rocksdb.history.wal_files import WalHistory
from datastores.rocksdb.source import RocksSource
from publisher.flows.known_flows import KnownFlows
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.model.position import LogPosition
from wormhole.model.sharding import Sharding

IDENTITY = "2630b5dc-d899-4bfe-bc91-6d8c28da7645"
EVIDENCE = Evidence(
    manifest=5, sequence=13, identity=(10019115, 1795372069247218298, 1795372069247218298), table=(12, 1142)
)


@pytest.fixture
def state(before: Path) -> Path:
    return before / "rocksdb/state/shop/main/db1"


async def test_flows_that_were_served_are_not_new(state: Path) -> None:
    coordinator = MemoryCoordinator()
    await coordinator.start()
    known = KnownFlows(coordinator, state / "flows.json")
    beyond = await known.epoch_after(("cache", "db1"))
    assert beyond is not None
    assert beyond > 1
    assert await known.epoch_after(("search", "db1")) == beyond
    assert await known.epoch_after(("another", "db1")) is None


def test_column_families_are_known_without_the_manifest(state: Path) -> None:
    families = FamilyCatalogue(state / "nowhere", state / "source/rocksdb/1/families.json")
    assert families.names() == {0: "default", 1: "users"}
    assert (families.timestamp_size(0), families.timestamp_size(1)) == (0, 0)


def test_the_kept_history_is_known(state: Path) -> None:
    history = WalHistory(1, state / "source/rocksdb/1/wal", 1 << 30, lambda number, written_us: None)
    assert history.about == {"identity": IDENTITY, "reason": "first seen", "source_id": IDENTITY[:8]}
    assert history.reached == (10, 16)
    assert history.evidence == EVIDENCE
    assert (history.newer(-1), history.newer(4), history.newer(10)) == (4, 10, None)


@pytest.mark.parametrize("lost", ["histories.json", "1/known.json"])
def test_either_file_says_that_it_is_the_same_history(before: Path, state: Path, lost: str) -> None:
    (state / "source/rocksdb" / lost).unlink()
    source = RocksSource(
        before / "rocksdb/store",
        log="db1",
        state_dir=state / "source",
        sharding=Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=1 << 30,
    )
    source.start()
    try:
        assert source.latest().order == LogPosition(1, 10, 3068)
        assert source.earliest().order == LogPosition(1, 4, 0)
    finally:
        source.stop()
