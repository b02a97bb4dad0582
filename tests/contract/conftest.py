"""What several suites of contracts use: the forms of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore, MemoryMarkers, MemoryMarkerStore, ZooKeeperMarkerStore
from wormhole.config import CoordinatorConfig
from wormhole.ports.marker_store import MarkerStore


@pytest.fixture(params=["local", "memory", "zookeeper"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], MarkerStore]]:
    """Opens the store anew, as after a restart of its process."""
    opened: list[MarkerStore] = []
    markers = MemoryMarkers()

    def again() -> MarkerStore:
        while opened:
            opened.pop().close()
        store: MarkerStore
        if request.param == "local":
            store = LocalMarkerStore(tmp_path / "state")
        elif request.param == "memory":
            store = MemoryMarkerStore(markers)
        else:
            settings = CoordinatorConfig(zookeeper=request.getfixturevalue("zookeeper"), session_timeout=20.0)
            store = ZooKeeperMarkerStore(settings, "db1")
        store.open()
        opened.append(store)
        return store

    yield again
    while opened:
        opened.pop().close()
