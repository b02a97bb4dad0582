"""The port of `wormhole/ports/dead_letters.py` over its three forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.letters import letter
from tests.support.markers import CACHE, SEARCH, marker, write
from wormhole.model.errors import EpochRefused, MarkerStoreError
from wormhole.ports.dead_letters import DeadLetterStore
from wormhole.ports.marker_store import MarkerStore

Reopen = Callable[[], MarkerStore]


@pytest.fixture
def markers(reopen: Reopen) -> MarkerStore:
    store = reopen()
    for flow in (CACHE, SEARCH):
        store.register(flow, marker(1), "latest")
    return store


@pytest.fixture
def letters(markers: MarkerStore) -> DeadLetterStore:
    return markers.dead_letters()


def test_nothing_is_parked_at_first(letters: DeadLetterStore) -> None:
    assert letters.load(CACHE) == ()
    with pytest.raises(KeyError):
        letters.read(CACHE, "test:1:0")


def test_a_letter_is_there_after_a_restart_with_every_part(letters: DeadLetterStore, reopen: Reopen) -> None:
    told, parcel = letter(7, error="ValueError('ü')")
    letters.park(CACHE, 0, told, parcel)
    again = reopen().dead_letters()
    assert again.load(CACHE) == (told,)
    assert again.read(CACHE, told.id) == parcel
    assert again.load(SEARCH) == ()


def test_of_many_flows_those_with_letters_are_named(letters: DeadLetterStore) -> None:
    many = [("cache", f"db1.{number}") for number in range(20)]
    assert set(letters.parked([CACHE, *many])) == set()
    letters.park(CACHE, 0, *letter(7))
    letters.park(SEARCH, 0, *letter(7))
    assert set(letters.parked([CACHE, *many])) == {CACHE}
    assert set(letters.parked([CACHE, SEARCH])) == {CACHE, SEARCH}


def test_letters_come_in_the_order_of_the_log_however_they_were_parked(letters: DeadLetterStore) -> None:
    all_of_them = [letter(number, index=index) for number, index in ((2, 0), (10, 0), (10, 2), (10, 11), (30, 1))]
    for told, parcel in (all_of_them[3], all_of_them[0], all_of_them[4], all_of_them[2], all_of_them[1]):
        letters.park(CACHE, 0, told, parcel)
    assert letters.load(CACHE) == tuple(told for told, _ in all_of_them)


def test_parking_again_replaces(letters: DeadLetterStore) -> None:
    told, parcel = letter(7)
    letters.park(CACHE, 0, told, parcel)
    letters.park(CACHE, 0, replace(told, error="another"), replace(parcel, body=parcel.body + b""))
    assert letters.load(CACHE) == (replace(told, error="another"),)


def test_a_former_owner_adds_and_deletes_nothing(markers: MarkerStore, letters: DeadLetterStore) -> None:
    told, parcel = letter(7)
    letters.park(CACHE, 0, told, parcel)
    assert markers.raise_epoch(CACHE) == 1
    with pytest.raises(EpochRefused, match="cache/db1"):
        letters.park(CACHE, 0, *letter(8))
    with pytest.raises(EpochRefused):
        letters.remove(CACHE, [told.id], 0)
    with pytest.raises(EpochRefused):
        letters.park(CACHE, 2, *letter(8))
    assert letters.load(CACHE) == (told,)
    letters.park(CACHE, 1, *letter(8))
    letters.remove(CACHE, [told.id], 1)
    assert [told.id for told in letters.load(CACHE)] == ["test:8:0"]


def test_a_flow_without_a_record_takes_none(markers: MarkerStore, letters: DeadLetterStore) -> None:
    markers.forget(SEARCH)
    with pytest.raises(EpochRefused, match="none"):
        letters.park(SEARCH, 0, *letter(8))


def test_a_new_marker_is_no_new_epoch(markers: MarkerStore, letters: DeadLetterStore) -> None:
    letters.park(CACHE, 0, *letter(7))
    assert markers.store([write(9)]) == ()
    letters.park(CACHE, 0, *letter(8))
    assert len(letters.load(CACHE)) == 2


def test_letters_are_marked_and_deleted(letters: DeadLetterStore, reopen: Reopen) -> None:
    for number in (1, 2, 3):
        letters.park(CACHE, 0, *letter(number))
    letters.retry(CACHE, ["test:2:0", "test:9:0"])
    letters.remove(CACHE, ["test:1:0", "test:9:0"])
    letters = reopen().dead_letters()
    assert [(told.id, told.retrying) for told in letters.load(CACHE)] == [("test:2:0", True), ("test:3:0", False)]


def test_a_letter_is_kept_with_who_parked_it_until_it_is_for_anyone(letters: DeadLetterStore, reopen: Reopen) -> None:
    for number in (1, 2):
        told, parcel = letter(number)
        letters.park(CACHE, 0, replace(told, parked_by="s-1"), parcel)
    letters.retry(CACHE, ["test:1:0"])
    letters.retry(CACHE, ["test:2:0"], anyone=True)
    letters = reopen().dead_letters()
    assert [(told.retrying, told.parked_by) for told in letters.load(CACHE)] == [(True, "s-1"), (True, "")]


def test_a_flow_is_forgotten_and_the_others_are_not(letters: DeadLetterStore) -> None:
    for flow in (CACHE, SEARCH):
        letters.park(flow, 0, *letter(1))
    letters.forget(CACHE)
    letters.forget(CACHE)
    assert letters.load(CACHE) == ()
    assert len(letters.load(SEARCH)) == 1
    letters.park(CACHE, 0, *letter(1))
    assert len(letters.load(CACHE)) == 1


def test_the_largest_parcel_is_kept_whole(letters: DeadLetterStore, reopen: Reopen) -> None:
    told, parcel = letter(1, body=bytes(range(256)) * (min(letters.largest, 3 << 20) // 256 - 1))
    letters.park(CACHE, 0, told, parcel)
    assert reopen().dead_letters().read(CACHE, told.id) == parcel


def test_it_is_open_as_long_as_the_markers_are(markers: MarkerStore, letters: DeadLetterStore) -> None:
    markers.close()
    with pytest.raises(MarkerStoreError, match="not open"):
        letters.load(CACHE)
