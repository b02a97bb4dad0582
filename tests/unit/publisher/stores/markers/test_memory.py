"""What the memory store adds to the contract: one owner at a time."""

from __future__ import annotations

import pytest

from publisher.stores.markers import MemoryMarkers, MemoryMarkerStore
from tests.support.markers import CACHE, marker
from wormhole.model.errors import MarkerStoreError


def test_one_owner_at_a_time() -> None:
    markers = MemoryMarkers()
    first, second = MemoryMarkerStore(markers), MemoryMarkerStore(markers)
    first.open()
    first.open()
    first.register(CACHE, marker(1), "latest")
    with pytest.raises(MarkerStoreError, match="in use"):
        second.open()
    second.close()  # has no effect on the owner
    assert set(first.load()) == {CACHE}
    first.close()
    second.open()
    assert set(second.load()) == {CACHE}
