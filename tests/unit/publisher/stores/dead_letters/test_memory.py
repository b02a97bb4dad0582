"""What the memory form adds to the contract."""

from __future__ import annotations

from publisher.stores.markers import MemoryMarkers, MemoryMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker


def test_letters_outlive_the_store_as_markers_do() -> None:
    markers = MemoryMarkers()
    store = MemoryMarkerStore(markers)
    store.open()
    store.register(CACHE, marker(1), "latest")
    store.dead_letters().park(CACHE, 0, *letter(1))
    store.close()
    assert list(markers.letters[CACHE]) == ["test:1:0"]
