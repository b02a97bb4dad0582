"""Dead letters: rules that all stores follow, and the local store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.stores.dead_letters.rules import check_epoch, letter_from_json, letter_to_json
from publisher.stores.markers import LocalMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker, opened
from wormhole.model.errors import EpochRefused, MarkerStoreError
from wormhole.ports.dead_letters import DeadLetterStore

# --- Letters as they are stored, and whose they are


FLOW = ("app", "db1")


@pytest.mark.parametrize(
    "change",
    [
        {"position": "1/2"},
        {"position": None},
        {"rows": ["%"]},
        {"retrying": 1},
        {"id": 5},
        {"size": "x"},
        {"inside": None},
        {"index": "0"},
        {"parked_by": 5},
        *("", "[]", "{}", "nonsense"),
    ],
)
def test_what_is_damaged_is_reported_with_its_place(change: dict[str, object] | str) -> None:
    told, _ = letter(5)
    text = change if isinstance(change, str) else json.dumps({**json.loads(letter_to_json(told)), **change})
    with pytest.raises(MarkerStoreError, match=r"^store\.x .*\(flow app/db1\) \[marker-damaged\]"):
        letter_from_json(FLOW, text, "store.x")


def test_only_the_present_epoch_changes_letters() -> None:
    check_epoch(FLOW, 3, 3)
    for stored in (2, 4, None):
        with pytest.raises(EpochRefused, match=r"epoch 3 are not changed.*app/db1"):
            check_epoch(FLOW, 3, stored)


def test_a_letter_of_an_earlier_release_is_anyones() -> None:
    told, _ = letter(5)
    record = json.loads(letter_to_json(told))
    del record["parked_by"]
    assert letter_from_json(FLOW, json.dumps(record), "x") == replace(told, parked_by="")


# --- What the local form adds to the contract: one file, one transaction, damage


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalMarkerStore]:
    with opened(LocalMarkerStore(tmp_path)) as store:
        store.register(CACHE, marker(1), "latest")
        yield store


@pytest.fixture
def letters(store: LocalMarkerStore) -> DeadLetterStore:
    return store.dead_letters()


def test_a_damaged_letter_names_the_file(tmp_path: Path, letters: DeadLetterStore) -> None:
    letters.park(CACHE, 0, *letter(1))
    with closing(sqlite3.connect(tmp_path / "markers.sqlite")) as database:
        database.execute("UPDATE dead_letters SET letter = '{'")
        database.commit()
    with pytest.raises(MarkerStoreError, match=r"markers\.sqlite holds no valid parked update"):
        letters.load(CACHE)


def test_a_refused_letter_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, letters: DeadLetterStore) -> None:
    """A transaction that fails at its last step was never there."""
    told, parcel = letter(1)
    monkeypatch.setattr("publisher.stores.dead_letters.local.letter_to_json", lambda told: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        letters.park(CACHE, 0, told, parcel)
    assert letters.load(CACHE) == ()
    monkeypatch.undo()
    letters.park(CACHE, 0, told, parcel)
