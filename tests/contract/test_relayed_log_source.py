"""The contract of log sources over sources with a relay around them, one that holds all and one that holds little."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from publisher.relay.settings import RelaySettings
from tests.support.log_source_harness import DatabaseHarness, MemoryHarness
from tests.support.postgres_harness import PostgresHarness
from tests.support.relayed_harness import CACHE, HOLD, LITTLE, RelayedHarness
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.contract import Harness, LogSourceContract, MakeHarness
from wormhole.ports.testing.reading import read_log

RELAYS = {
    "cache": CACHE,
    "short-cache": replace(CACHE, budget=LITTLE),
    "hold": HOLD,
    "short-hold": replace(HOLD, budget=LITTLE, on_full="keep_slot"),
}


@pytest.fixture(params=[*(f"memory {name}" for name in RELAYS), "mariadb cache", "postgres hold"])
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHarness:
    kind, _, relay = request.param.partition(" ")
    new: MakeHarness = MemoryHarness
    if kind == "mariadb":
        new = partial(DatabaseHarness, request.getfixturevalue("mariadb_server"), tmp_path)
    elif kind == "postgres":
        request.getfixturevalue("quick_end")
        new = partial(PostgresHarness, request.getfixturevalue("postgres_server"), tmp_path)
    return partial(_relayed, new, tmp_path, RELAYS[relay])


def _relayed(new: MakeHarness, folder: Path, settings: RelaySettings, sharding: Sharding) -> Harness:
    return RelayedHarness(new(sharding), folder, settings)


class TestRelayedLogSource(LogSourceContract):
    @pytest.mark.parametrize("new_harness", ["memory cache"], indirect=True)
    def test_a_time_means_the_last_place_by_which_all_was_committed(self, harness: Harness) -> None:
        """Once: it takes seconds."""
        super().test_a_time_means_the_last_place_by_which_all_was_committed(harness)


@pytest.mark.parametrize("settings", [CACHE, HOLD], ids=["cache", "hold"])
def test_what_the_datastore_lost_is_read_from_the_relay(settings: RelaySettings, tmp_path: Path) -> None:
    harness = RelayedHarness(MemoryHarness(Sharding("log")), tmp_path, settings)
    start = harness.source.latest()
    for n in range(5):
        harness.commit([("put", "a", b"%d" % n, b"v")])
    read = read_log(harness.source, start)
    harness.purge_inner()
    for marker in (start, read.markers[0]):
        again = read_log(harness.source, marker)
        assert again.updates[:-1] == read.updates[len(read.updates) + 1 - len(again.updates) :]
    harness.close()
