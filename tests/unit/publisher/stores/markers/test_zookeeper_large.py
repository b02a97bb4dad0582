"""Records that are too large for a request of ZooKeeper: many go in several, one that is too large holds its flow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from publisher.stores.guarded_client import MOST_BYTES
from publisher.stores.markers import ZooKeeperMarkerStore
from publisher.stores.markers.rules import flow_to_json
from tests.support.markers import marker, opened
from wormhole.config import CoordinatorConfig
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker, flow_name
from wormhole.ports.marker_store import BackfillControl, FlowControl, FlowKey, MarkerWrite, StoredFlow

FLOWS = [("cache", f"db1.{number}") for number in range(100)]
LARGE = ("cache", "db1.large")


def delivered(offset: int, size: int = 5_000) -> Datamarker:
    """A datamarker whose record is about 2.33 times ``size``."""
    origin = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77,"
    return replace(marker(offset), delivered=(origin * (size // len(origin) + 1))[:size])


def writes(offset: int, epoch: int, size: int = 600_000) -> list[MarkerWrite]:
    """One of each flow, the large one in the middle."""
    found = [MarkerWrite(flow, epoch, delivered(offset), "f") for flow in FLOWS]
    return [*found[:50], MarkerWrite(LARGE, epoch, delivered(offset, size), "f"), *found[50:]]


@pytest.fixture
def store(zookeeper: str) -> Iterator[ZooKeeperMarkerStore]:
    store = ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper, session_timeout=30.0), "db1")
    with opened(store):
        broken: list[Any] = []
        store._client.kazoo.add_listener(broken.append)
        yield store
        assert not broken, "ZooKeeper ends the connection over which too much comes"


@pytest.fixture
def served(store: ZooKeeperMarkerStore) -> ZooKeeperMarkerStore:
    """All flows have records, small ones."""
    store.register_all({flow: StoredFlow(marker(1), 0, "latest") for flow in (*FLOWS, LARGE)})
    return store


def markers(store: ZooKeeperMarkerStore, flows: list[FlowKey]) -> set[Datamarker]:
    found = store.load()
    return {found[flow].marker for flow in flows}


def somebody_writes(store: ZooKeeperMarkerStore, flow: FlowKey, monkeypatch: pytest.MonkeyPatch) -> list[set[FlowKey]]:
    """Somebody else writes the flow's record after it was first read. Returns which flows are read each time."""
    right, asked = store._get_all, list[set[FlowKey]]()

    def get_all(flows: Any, **how: Any) -> Any:
        asked.append(set(flows))
        found = right(flows, **how)
        if len(asked) == 1:
            kazoo, path = store._client.kazoo, store._path(flow)
            kazoo.set(path, kazoo.get(path)[0])
        return found

    monkeypatch.setattr(store, "_get_all", get_all)
    return asked


def test_records_of_many_flows_are_more_than_one_request(store: ZooKeeperMarkerStore) -> None:
    records = {flow: StoredFlow(delivered(1), 0, "latest") for flow in FLOWS}
    assert store.register_all(records) == records
    assert set(store.raise_epochs(dict.fromkeys(FLOWS, 0)).values()) == {1}
    assert store.store([MarkerWrite(flow, 1, delivered(2), "f") for flow in FLOWS]) == ()
    assert markers(store, FLOWS) == {delivered(2)}


def test_a_datamarker_that_is_too_large_holds_its_flow_and_no_other(
    served: ZooKeeperMarkerStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert served.store(writes(2, 0)) == (LARGE,)
        assert served.store(writes(3, 0)) == (LARGE,)
    assert markers(served, FLOWS) == {delivered(3)}
    assert served.load()[LARGE].marker == marker(1)
    (said,) = caplog.messages
    assert "flow cache/db1.large" in said
    for part in ("has 1,400,", "takes 1,000,000", "600,000 bytes are what was delivered", "Next: ", "gaps"):
        assert part in said
    epochs = served.raise_epochs(dict.fromkeys((*FLOWS, LARGE), 0))
    assert epochs == dict.fromkeys(FLOWS, 1), "nobody gets the flow whose datamarkers cannot be stored"
    with pytest.raises(MarkerStoreError, match=r"1,400,\d+ bytes.*flow cache/db1\.large") as caught:
        served.raise_epoch(LARGE)
    assert caught.value.flow == flow_name(*LARGE)


def test_a_flow_goes_on_once_its_datamarker_is_set_to_one_that_fits(served: ZooKeeperMarkerStore) -> None:
    assert served.store(writes(2, 0)) == (LARGE,)
    with pytest.raises(MarkerStoreError, match=r"too large.*flow cache/db1\.large"):
        served.rewind(LARGE, delivered(3, 600_000))
    assert served.rewind(LARGE, delivered(3)) == 1
    assert served.raise_epochs({LARGE: 0}) == {LARGE: 2}
    assert served.store([MarkerWrite(LARGE, 2, delivered(4), "f")]) == ()


def test_a_flow_goes_on_once_a_datamarker_fits_again(served: ZooKeeperMarkerStore) -> None:
    assert served.store(writes(2, 0)) == (LARGE,)
    assert served.store(writes(3, 0, size=5_000)) == ()
    assert served.raise_epoch(LARGE) == 1


def test_a_flow_is_tried_again_once_something_else_is_asked_of_it(served: ZooKeeperMarkerStore) -> None:
    assert served.store(writes(2, 0)) == (LARGE,)
    assert served.set_control(LARGE, FlowControl(paused="eve"))
    assert served.raise_epochs({LARGE: 0}) == {LARGE: 1}
    assert served.store(writes(2, 1)[50:51]) == (LARGE,)
    assert served.raise_epochs({LARGE: 0}) == {}


def test_another_process_tries_what_this_one_could_not_store(served: ZooKeeperMarkerStore, zookeeper: str) -> None:
    assert served.store(writes(2, 0)) == (LARGE,)
    with opened(ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper), "db1")) as other:
        assert other.raise_epoch(LARGE) == 1
        assert served.raise_epoch(LARGE) == 2, "the other one may have changed it"


def test_flows_are_registered_but_for_the_one_that_is_too_large(store: ZooKeeperMarkerStore) -> None:
    records = {write.flow: StoredFlow(write.marker, 0, "latest") for write in writes(1, 0)}
    with pytest.raises(MarkerStoreError, match=r"1,400,\d+ bytes.*1,000,000.*flow cache/db1\.large") as caught:
        store.register_all(records)
    assert caught.value.flow == flow_name(*LARGE)
    assert store.load().keys() == set(FLOWS)
    with pytest.raises(MarkerStoreError, match=r"1,000,000.*flow cache/db1\.large"):
        store.register(LARGE, delivered(1, 600_000), "latest")


def test_what_is_asked_of_a_flow_may_be_too_large(served: ZooKeeperMarkerStore) -> None:
    tables = tuple(f"shop.{number:0100}" for number in range(12_000))
    asked = FlowControl(backfill=BackfillControl(1, "eve", 1.0, tables))
    with pytest.raises(MarkerStoreError, match=r"what was asked of it.*flow cache/db1\.large.*Next: .*fewer"):
        served.set_control(LARGE, asked)
    assert served.set_control(LARGE, FlowControl(paused="eve"))


def test_progress_of_a_backfill_may_be_too_large(served: ZooKeeperMarkerStore) -> None:
    far = replace(marker(2), backfill=bytes(800_000))
    with pytest.raises(MarkerStoreError, match=r"800,000 bytes are how far its backfill came .flow cache/db1\.large"):
        served.rewind(LARGE, far)


def test_counts_that_are_too_large_with_their_datamarker_are_stored_neither_nor(
    served: ZooKeeperMarkerStore, caplog: pytest.LogCaptureFixture
) -> None:
    pages = {f"f.{window}": bytes(1_000) for window in range(1_000)}
    assert served.store([MarkerWrite(LARGE, 0, marker(2), "f", pages), *writes(2, 0)[:50]]) == (LARGE,)
    assert "1,000,000 bytes are its counts of deliveries" in caplog.text
    assert served.delivery_counts([LARGE]) == {LARGE: {}}
    assert markers(served, FLOWS[:50]) == {delivered(2)}


def test_a_record_just_below_the_limit_is_taken(served: ZooKeeperMarkerStore) -> None:
    assert served.store([MarkerWrite(LARGE, 0, delivered(2, 428_000), "f")]) == ()
    assert served.raise_epochs({LARGE: 0}) == {LARGE: 1}
    assert served.set_control(LARGE, FlowControl(paused="eve"))
    assert served.load()[LARGE].marker == delivered(2, 428_000)


def test_no_record_is_serialized_twice(served: ZooKeeperMarkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[StoredFlow] = []

    def counted(stored: StoredFlow) -> bytes:
        asked.append(stored)
        return flow_to_json(stored)

    monkeypatch.setattr("publisher.stores.markers.zookeeper.flow_to_json", counted)
    served.store(writes(2, 0))
    assert len(asked) == 101
    served.raise_epochs(dict.fromkeys(FLOWS, 0))
    assert len(asked) == 201


def test_after_a_lost_race_only_its_transaction_is_repeated(
    served: ZooKeeperMarkerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = somebody_writes(served, FLOWS[-1], monkeypatch)
    late = MarkerWrite(FLOWS[-1], 0, delivered(2), "f")
    assert served.store([*(MarkerWrite(flow, 0, delivered(3), "f") for flow in FLOWS[1:]), late]) == (FLOWS[-1],)
    first, again = asked
    assert first == set(FLOWS[1:])
    assert FLOWS[-1] in again
    assert len(again) < 50
    assert markers(served, FLOWS[1:]) == {delivered(3)}


def test_an_epoch_that_would_be_too_large_is_not_raised(served: ZooKeeperMarkerStore) -> None:
    path = served._path(LARGE)
    stored = StoredFlow(delivered(2, 420_000), 9, "")
    request = MOST_BYTES - 17 - 21 - len(path)
    stored = replace(stored, start="x" * (request - len(flow_to_json(stored))))
    served._client.kazoo.set(path, flow_to_json(stored))
    assert served.raise_epochs(dict.fromkeys((*FLOWS, LARGE), 0)) == dict.fromkeys(FLOWS, 1)
    with pytest.raises(MarkerStoreError, match=r"has 1,000,001 bytes.*flow cache/db1\.large"):
        served.raise_epoch(LARGE)
    served._client.kazoo.set(path, flow_to_json(replace(stored, epoch=8)))
    assert served.raise_epochs({LARGE: 0}) == {LARGE: 9}


def test_epochs_are_raised_after_a_lost_race(served: ZooKeeperMarkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    somebody_writes(served, FLOWS[7], monkeypatch)
    assert served.raise_epochs(dict.fromkeys(FLOWS, 3)) == dict.fromkeys(FLOWS, 4)
