"""What the ZooKeeper store adds to the contract: several hosts, and an outage."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.stores.markers import ZooKeeperMarkerStore
from tests.support.eventually import PATIENCE_S
from tests.support.letters import letter
from tests.support.markers import CACHE, marker, opened, write
from wormhole.config import CoordinatorConfig
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.model.errors import CoordinationLost
from wormhole.ports.marker_store import FlowKey


def test_hosts_that_write_at_the_same_time_lose_nothing(zookeeper: str) -> None:
    settings = CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0)
    stores = [ZooKeeperMarkerStore(settings, "db1") for _ in range(2)]
    for store in stores:
        store.open()
    stores[0].register(CACHE, marker(0), "latest")
    epochs: list[int] = []

    def act(store: ZooKeeperMarkerStore) -> None:
        for offset in range(1, 16):
            epoch = store.raise_epoch(CACHE)
            epochs.append(epoch)
            store.store([write(offset, epoch=epoch)])  # refused where the other was faster, never stored over it

    threads = [threading.Thread(target=act, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(1, 31))
    for store in stores:
        store.close()


@pytest.fixture
def store(zookeeper: str) -> Iterator[ZooKeeperMarkerStore]:
    with opened(ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper), "db1")) as store:
        yield store


def test_holds_apart_what_belongs_to_other_logs(store: ZooKeeperMarkerStore) -> None:
    for shard in ("db1", "db1.t", "db10", "db2.t"):
        store.register(("cache", shard), marker(1), "latest")
    assert set(store.load()) == {("cache", "db1"), ("cache", "db1.t")}


def test_away_is_retryable_and_loses_nothing(frail_zookeeper: EmbeddedZooKeeper) -> None:
    settings = CoordinatorConfig(zookeeper=f"{frail_zookeeper.hosts}/away", session_timeout=2.0)
    with opened(ZooKeeperMarkerStore(settings, "db1")) as store:
        store.register(CACHE, marker(1), "latest")
        frail_zookeeper.kill()
        with pytest.raises(CoordinationLost, match=frail_zookeeper.hosts):
            store.store([write(5)])
        frail_zookeeper.start()
        connected = threading.Event()
        store._client.kazoo.add_listener(lambda state: connected.set() if state == "CONNECTED" else None)
        assert store._client.kazoo.connected or connected.wait(PATIENCE_S)
        assert store.store([write(6)]) == ()
        assert store.load()[CACHE].marker == marker(6)


class Owner:
    """A store that owns its log, and why it has to give that up."""

    def __init__(self, settings: CoordinatorConfig, log: str) -> None:
        self.log, self.flow = log, ("cache", log)
        self.reasons, self.connected = list[str](), threading.Event()
        self.store = ZooKeeperMarkerStore(settings, log)
        self.store.open()
        self.store.guard(lambda: "", self.reasons.append)
        self.store._client.kazoo.add_listener(lambda state: self.connected.set() if state == "CONNECTED" else None)
        self.store.register(self.flow, marker(1), "latest")
        self.epoch = self.store.raise_epoch(self.flow)
        assert self.stores(5) == ()

    def stores(self, offset: int) -> tuple[FlowKey, ...]:
        return tuple(self.store.store([write(offset, self.epoch, self.flow)]))

    def is_refused(self) -> None:
        older = rf"put back to an older state: .*/markers/{self.log} is in version 2, and was in 3"
        with pytest.raises(CoordinationLost, match=older):
            self.stores(7)
        for refused in (lambda: self.store.raise_epoch(self.flow), lambda: self.stores(8)):
            with pytest.raises(CoordinationLost, match="put back to an older state"):
                refused()
        assert len(self.reasons) == 1
        assert self.store.load()[self.flow].marker == marker(5)


def test_a_zookeeper_that_was_put_back_is_written_no_more(frail_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """What the store's owner remembers is newer than what is there: it would pass over what came between."""
    settings = CoordinatorConfig(zookeeper=f"{frail_zookeeper.hosts}/put-back", session_timeout=2.0)
    data, backup = frail_zookeeper.folder / "data", tmp_path / "backup"
    marks, parks = owners = Owner(settings, "db1"), Owner(settings, "db2")

    def restarted(from_: Path, to: Path) -> None:
        frail_zookeeper.stop()
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(from_, to, ignore=shutil.ignore_patterns("*.sock"))
        for owner in owners:
            owner.connected.clear()
        frail_zookeeper.start()
        assert all(owner.connected.wait(PATIENCE_S) for owner in owners)

    restarted(data, backup)
    assert marks.stores(6) == ()
    parks.store.dead_letters().park(parks.flow, parks.epoch, *letter(6))
    assert not marks.reasons + parks.reasons, "a restart is none"
    restarted(backup, data)
    for owner in owners:
        owner.is_refused()
        owner.store.close()
    with opened(ZooKeeperMarkerStore(settings, "db1")) as again:
        assert again.store([write(7, marks.epoch)]) == ()  # who begins anew knows nothing newer
        again.register(("other", "db1"), marker(1), "latest")
        again.raise_epoch(("other", "db1"))
        again.forget(("other", "db1"))
        again.register(("other", "db1"), marker(1), "latest")
        assert again.raise_epoch(("other", "db1")) == 1, "a record that is made anew is not an older one"


def test_unreachable_says_what_to_check() -> None:
    store = ZooKeeperMarkerStore(CoordinatorConfig(zookeeper="127.0.0.1:1", connect_timeout=0.3), "db1")
    with pytest.raises(CoordinationLost, match=r"127\.0\.0\.1:1 does not answer"):
        store.open()
