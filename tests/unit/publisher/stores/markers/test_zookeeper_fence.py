"""Who no longer owns a log writes nothing of it to ZooKeeper, whatever it believes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from publisher.stores.markers import ZooKeeperMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, SEARCH, marker, write
from wormhole.config import CoordinatorConfig
from wormhole.coordination.port import LogGroup
from wormhole.model.errors import CoordinationLost, MarkerStoreError
from wormhole.ports.marker_store import FlowControl, MarkerWrite, StoredFlow

GROUP = LogGroup("shop", "@failover", "db1")
LETTER, PARCEL = letter(1)
COUNTED = MarkerWrite(CACHE, 0, marker(5), "f", {"1.page": b"counts"})

WRITES: dict[str, Callable[[ZooKeeperMarkerStore], object]] = {
    "register": lambda store: store.register(SEARCH, marker(1), "latest"),
    "register_all": lambda store: store.register_all({SEARCH: StoredFlow(marker(1), 0, "latest")}),
    "raise_epoch": lambda store: store.raise_epoch(CACHE),
    "raise_epochs": lambda store: store.raise_epochs({CACHE: 0}),
    "store": lambda store: store.store([write(5)]),
    "store with counts": lambda store: store.store([COUNTED]),
    "rewind": lambda store: store.rewind(CACHE, marker(0)),
    "set_control": lambda store: store.set_control(CACHE, FlowControl(paused="eve")),
    "forget": lambda store: store.forget(CACHE),
    "park": lambda store: store.dead_letters().park(CACHE, 0, *letter(2)),
    "park anew": lambda store: store.dead_letters().park(CACHE, 0, LETTER, PARCEL),
    "retry": lambda store: store.dead_letters().retry(CACHE, [LETTER.id]),
    "remove": lambda store: store.dead_letters().remove(CACHE, [LETTER.id], 0),
    "forget letters": lambda store: store.dead_letters().forget(CACHE),
    "source state": lambda store: store.source_state(GROUP).write("histories", {"1": "server"}),
}


@dataclass
class Scene:
    """A store that is guarded by ``claim``, which the session ``other`` holds. ``asked``: its transactions."""

    store: ZooKeeperMarkerStore
    other: Any
    root: str
    claim: str
    asked: list[str] = field(default_factory=list)

    def tree(self) -> dict[str, tuple[bytes, int]]:
        """Everything below the root but the claim: content and version."""
        found: dict[str, tuple[bytes, int]] = {}
        folders = [self.root]
        while folders:
            path = folders.pop()
            data, stat = self.other.get(path)
            found[path] = (data, stat.version)
            folders += [f"{path}/{name}" for name in self.other.get_children(path)]
        found.pop(self.claim, None)
        return found

    def after_reading(self, act: Callable[[], object]) -> None:
        """Do it between each reading of records and what is written then."""
        right = self.store._get_all

        def get_all(flows: Any, **how: Any) -> Any:
            found = right(flows, **how)
            act()
            return found

        self.store._get_all = get_all  # type: ignore[method-assign]

    def take(self, claim: str) -> None:
        self.claim = claim
        self.other.create(claim, b"", makepath=True, ephemeral=True)


@pytest.fixture
def scene(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    settings = CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0)
    stores = [ZooKeeperMarkerStore(settings, "db1") for _ in range(2)]
    for store in stores:
        store.open()
    guarded = stores[0]
    guarded.register(CACHE, marker(1), "latest")
    guarded.dead_letters().park(CACHE, 0, LETTER, PARCEL)
    root = f"/{zookeeper.partition('/')[2]}"
    scene = Scene(guarded, stores[1]._client.kazoo, root, "")
    scene.take(f"{root}/logs/shop/@failover/db1/claims/c1")
    guarded.guard(lambda: scene.claim)
    right = guarded._client.transact_all

    def transact_all(what: str, fills: Any) -> Any:
        scene.asked.append(what)
        return right(what, fills)

    monkeypatch.setattr(guarded._client, "transact_all", transact_all)
    yield scene
    for store in stores:
        store.close()


@pytest.mark.parametrize("name", WRITES)
def test_only_an_owner_writes(scene: Scene, name: str) -> None:
    assert scene.store.store([write(1)]) == (), "it had the claim"
    before, claim = scene.tree(), scene.claim
    scene.claim = ""
    with pytest.raises(CoordinationLost, match="claim on the log is gone"):
        WRITES[name](scene.store)  # it gave its claim up
    scene.claim = claim
    assert scene.tree() == before
    scene.other.delete(claim)
    before = scene.tree()
    scene.asked.clear()
    with pytest.raises(CoordinationLost, match="claim on the log is gone: another one may own it") as caught:
        WRITES[name](scene.store)
    assert "wormholectl publishers" in str(caught.value.hint)
    assert scene.tree() == before
    assert len(scene.asked) == 1, "taken for an ordinary race"
    scene.take(claim)
    before = scene.tree()
    WRITES[name](scene.store)
    assert scene.tree() != before, "an owner writes as ever"


def test_before_the_first_claim_nothing_is_checked(scene: Scene) -> None:
    scene.claim = ""
    assert scene.store.raise_epoch(CACHE) == 1


def test_a_claim_that_was_taken_again_counts(scene: Scene) -> None:
    scene.other.delete(scene.claim)
    with pytest.raises(CoordinationLost):
        scene.store.raise_epoch(CACHE)
    scene.take(f"{scene.root}/logs/shop/@failover/db1/claims/c2")
    assert scene.store.raise_epoch(CACHE) == 1


def test_a_claim_that_ends_between_reading_and_writing_is_noticed(scene: Scene) -> None:
    before = scene.tree()
    scene.after_reading(lambda: scene.other.delete(scene.claim))
    with pytest.raises(CoordinationLost, match="claim on the log is gone"):
        scene.store.store([write(5)])
    assert scene.tree() == before


def test_flows_that_another_owner_took_are_not_refused_one_by_one(scene: Scene) -> None:
    """Each that is refused would be asked back from its subscriber, with an error of its own in the log."""
    scene.store.raise_epoch(CACHE)
    assert scene.store.store([write(5)]) == (CACHE,), "an owner hears of a flow of another epoch"
    scene.other.delete(scene.claim)
    with pytest.raises(CoordinationLost, match="claim on the log is gone"):
        scene.store.store([write(5)])


def test_races_with_operators_are_still_won_under_a_claim(scene: Scene) -> None:
    races, path = iter(range(3)), scene.store._path(CACHE)
    scene.after_reading(lambda: next(races, None) is None or scene.other.set(path, scene.other.get(path)[0]))
    assert scene.store.store([write(5)]) == ()
    assert next(races, None) is None
    assert scene.store.load()[CACHE].marker == marker(5)


def test_a_claim_that_may_not_be_read_is_a_refusal(scene: Scene) -> None:
    scene.other.set_acls(scene.claim, [make_digest_acl("nobody", "none", all=True)])
    with pytest.raises(MarkerStoreError, match=r"refuses to write .*NoAuthError"):
        scene.store.raise_epoch(CACHE)


def test_an_owner_reads_nothing_older_than_its_claim(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    client, synced = scene.store._client.kazoo, []
    right = client.sync_async

    def sync_async(path: str) -> Any:
        synced.append(path)
        return right(path)

    monkeypatch.setattr(client, "sync_async", sync_async)
    scene.store.load()
    scene.store.source_state(GROUP).read("histories")
    assert synced == ["/", "/"]
    claim, scene.claim = scene.claim, ""
    scene.store.load()
    scene.claim = claim
    assert synced == ["/", "/"], "a standby has nothing to be newer than"
