"""What the ZooKeeper form adds to the contract: other writers, names that are no node's, what is too large for a
request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from publisher.stores.dead_letters.zookeeper import ZooKeeperDeadLetters
from publisher.stores.markers import ZooKeeperMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker, opened, write
from wormhole.config import CoordinatorConfig
from wormhole.model.errors import EpochRefused, MarkerStoreError


@pytest.fixture
def store(zookeeper: str) -> Iterator[ZooKeeperMarkerStore]:
    with opened(ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0), "db1")) as store:
        store.register(CACHE, marker(1), "latest")
        yield store


@pytest.fixture
def letters(store: ZooKeeperMarkerStore) -> ZooKeeperDeadLetters:
    return store.dead_letters()


def test_a_marker_that_is_written_between_reading_and_parking_is_no_hindrance(
    store: ZooKeeperMarkerStore,
    monkeypatch: pytest.MonkeyPatch,
    letters: ZooKeeperDeadLetters,
) -> None:
    right, writes = letters._exists, iter((write(5), write(6)))

    def exists(path: str) -> bool:
        for one in writes:
            store.store([one])
            break
        return right(path)

    monkeypatch.setattr(letters, "_exists", exists)
    letters.park(CACHE, 0, *letter(1))
    assert len(letters.load(CACHE)) == 1


def test_an_epoch_that_is_raised_between_reading_and_parking_is_noticed(
    store: ZooKeeperMarkerStore,
    monkeypatch: pytest.MonkeyPatch,
    letters: ZooKeeperDeadLetters,
) -> None:
    right = letters._exists

    def exists(path: str) -> bool:
        store.raise_epoch(CACHE)
        return right(path)

    monkeypatch.setattr(letters, "_exists", exists)
    with pytest.raises(EpochRefused):
        letters.park(CACHE, 0, *letter(1))
    assert letters.load(CACHE) == ()


def test_an_id_may_hold_what_no_node_is_called(letters: ZooKeeperDeadLetters) -> None:
    told, parcel = letter(1)
    told = replace(told, id="a/b c%:1:0")
    letters.park(CACHE, 0, told, parcel)
    assert letters.load(CACHE) == (told,)
    assert letters.read(CACHE, told.id) == parcel
    letters.remove(CACHE, [told.id])
    assert letters.load(CACHE) == ()


def test_an_update_that_is_too_large_with_its_key_is_refused_before_it_is_sent(letters: ZooKeeperDeadLetters) -> None:
    told, parcel = letter(1, body=bytes(880_000))
    with pytest.raises(MarkerStoreError, match=r"too large to be parked: .*1,0\d\d,\d+ bytes.*1,000,000") as caught:
        letters.park(CACHE, 0, replace(told, rows=(bytes(150_000),)), parcel)
    assert caught.value.flow == "cache/db1"
    assert caught.value.hint == f"`wormholectl flows skip cache/db1 --update {told.id}` passes over it"
    assert letters.load(CACHE) == ()
    letters.park(CACHE, 0, told, parcel)
    letters.retry(CACHE, [told.id])
    assert letters.read(CACHE, told.id) == parcel


def test_a_writer_that_goes_on_is_reported(monkeypatch: pytest.MonkeyPatch, letters: ZooKeeperDeadLetters) -> None:
    never: Any = lambda self, flow, version, fill: False  # noqa: E731
    monkeypatch.setattr(ZooKeeperDeadLetters, "_commit", never)
    with pytest.raises(MarkerStoreError, match="another process keeps writing"):
        letters.park(CACHE, 0, *letter(1))
