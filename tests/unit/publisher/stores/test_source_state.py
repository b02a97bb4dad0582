"""What a source knows of its servers is found by the next host that owns the log."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Iterator

import pytest

from publisher.stores import source_state
from publisher.stores.markers import ZooKeeperMarkerStore
from publisher.stores.source_state import InheritedState, ZooKeeperSourceState
from wormhole.config import CoordinatorConfig
from wormhole.coordination.port import LogGroup
from wormhole.model.errors import ConfigError, CoordinationLost, MarkerStoreError

GROUP = LogGroup("shop", "@failover", "db1")
CONTENT = {"histories": [{"server": "3E11FA47", "number": 2}], "texts": "größer"}


def opened(zookeeper: str) -> ZooKeeperMarkerStore:
    store = ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper, session_timeout=5.0), "db1")
    store.open()
    return store


@pytest.fixture
def store(zookeeper: str) -> Iterator[ZooKeeperMarkerStore]:
    store = opened(zookeeper)
    yield store
    store.close()


@pytest.fixture
def state(store: ZooKeeperMarkerStore) -> ZooKeeperSourceState:
    return store.source_state(GROUP)


def test_another_host_finds_what_was_written_last(state: ZooKeeperSourceState, zookeeper: str) -> None:
    assert state.read("histories") == {}
    state.write("histories", {"first": 1})
    state.write("histories", CONTENT)
    state.write("read", {"end": 5})
    other = opened(zookeeper)
    try:
        assert other.source_state(GROUP).read("histories") == CONTENT
        assert other.source_state(GROUP).read("read") == {"end": 5}
        assert other.source_state(LogGroup("shop", "main", "db1")).read("histories") == {}, "another group's"
    finally:
        other.close()


def test_its_place_is_below_the_log(state: ZooKeeperSourceState, store: ZooKeeperMarkerStore, zookeeper: str) -> None:
    state.write("histories", CONTENT)
    path = f"/{zookeeper.partition('/')[2]}/logs/shop/@failover/db1/state/histories"
    data, _ = store._client.kazoo.get(path)
    assert json.loads(zlib.decompress(data)) == CONTENT


DAMAGED = {
    "no compressed text": b"histories",
    "cut off": zlib.compress(json.dumps(CONTENT).encode())[:-5],
    "something behind it": zlib.compress(b"{}") + b"x",
    "no object": zlib.compress(b"[1]"),
    "no JSON": zlib.compress(b"{"),
    "no text": zlib.compress(b"\xff"),
    "empty": b"",
    "larger than memory": zlib.compress(b'{"x": "' + b"a" * (17 << 20) + b'"}'),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_node_is_named(state: ZooKeeperSourceState, store: ZooKeeperMarkerStore, damage: str) -> None:
    state.write("histories", CONTENT)
    path = store._paths.log_state(GROUP, "histories")
    store._client.kazoo.set(path, DAMAGED[damage])
    with pytest.raises(MarkerStoreError, match=f"{path} holds nothing that a publisher wrote") as caught:
        state.read("histories")
    assert "restore ZooKeeper from a backup, or delete the node" in str(caught.value.hint)
    state.write("histories", CONTENT)
    assert state.read("histories") == CONTENT, "written anew"


def test_what_fits_into_a_node_is_stored(state: ZooKeeperSourceState) -> None:
    content = {"noise": base64.b64encode(random.Random(1).randbytes(850_000)).decode()}
    state.write("histories", content)
    assert state.read("histories") == content


def test_what_does_not_fit_is_refused_before_it_is_sent(state: ZooKeeperSourceState) -> None:
    content = {"noise": base64.b64encode(random.Random(1).randbytes(950_000)).decode()}
    with pytest.raises(ConfigError, match=r"state/histories: what the source knows .* takes 9\d\d,\d\d\d bytes"):
        state.write("histories", content)
    assert state.read("histories") == {}


def test_what_could_not_be_read_again_is_not_written(state: ZooKeeperSourceState) -> None:
    with pytest.raises(ConfigError, match=r"17,825,80\d before it is compressed"):
        state.write("histories", {"x": "a" * (17 << 20)})


def test_the_bound_itself_fits(state: ZooKeeperSourceState, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(source_state._packed("x", CONTENT))
    monkeypatch.setattr(source_state, "_MOST_STORED", size)
    state.write("histories", CONTENT)
    monkeypatch.setattr(source_state, "_MOST_STORED", size - 1)
    with pytest.raises(ConfigError):
        state.write("histories", CONTENT)


def test_a_node_that_appears_meanwhile_is_replaced(
    state: ZooKeeperSourceState, store: ZooKeeperMarkerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store._paths.log_state(GROUP, "histories")
    monkeypatch.setattr(
        store._client, "make", lambda folders: store._client.kazoo.create(path, b"somebody else's", makepath=True)
    )
    state.write("histories", CONTENT)
    assert state.read("histories") == CONTENT


def test_without_an_open_store_nothing_is_asked(zookeeper: str) -> None:
    closed = ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper), "db1").source_state(GROUP)
    with pytest.raises(MarkerStoreError, match="not open"):
        closed.read("histories")
    with pytest.raises(MarkerStoreError, match="not open"):
        closed.write("histories", CONTENT)


def test_a_former_owner_replaces_nothing(state: ZooKeeperSourceState, store: ZooKeeperMarkerStore) -> None:
    state.write("histories", CONTENT)
    store.guard(lambda: f"{store._paths.log(GROUP)}/claims/gone")
    with pytest.raises(CoordinationLost, match="claim on the log is gone"):
        state.write("histories", {})
    assert state.read("histories") == CONTENT


def test_a_failover_begins_with_what_the_copy_before_knew(store: ZooKeeperMarkerStore) -> None:
    main, west = (store.source_state(LogGroup("shop", copy, "db1")) for copy in ("main", "west"))
    state = InheritedState(store.source_state(GROUP), [main, west])
    assert state.read("histories") == {}
    west.write("histories", {"of": 2})
    assert state.read("histories") == {"of": 2}
    main.write("histories", CONTENT)
    assert state.read("histories") == CONTENT, "copies in the order of preference"
    state.write("histories", {"of": 3})
    assert state.read("histories") == {"of": 3}
    assert main.read("histories") == CONTENT, "an earlier group's is left alone"
