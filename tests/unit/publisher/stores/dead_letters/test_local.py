"""What the local form adds to the contract: one file, one transaction, damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker, opened
from wormhole.model.errors import MarkerStoreError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalMarkerStore]:
    with opened(LocalMarkerStore(tmp_path)) as store:
        store.register(CACHE, marker(1), "latest")
        yield store


def test_a_damaged_letter_names_the_file(store: LocalMarkerStore, tmp_path: Path) -> None:
    letters = store.dead_letters()
    letters.park(CACHE, 0, *letter(1))
    with closing(sqlite3.connect(tmp_path / "markers.sqlite")) as database:
        database.execute("UPDATE dead_letters SET letter = '{'")
        database.commit()
    with pytest.raises(MarkerStoreError, match=r"markers\.sqlite holds no valid parked update"):
        letters.load(CACHE)


def test_a_refused_letter_leaves_nothing_behind(store: LocalMarkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that fails at its last step was never there."""
    letters = store.dead_letters()
    told, parcel = letter(1)
    monkeypatch.setattr("publisher.stores.dead_letters.local.letter_to_json", lambda told: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        letters.park(CACHE, 0, told, parcel)
    assert letters.load(CACHE) == ()
    monkeypatch.undo()
    letters.park(CACHE, 0, told, parcel)
