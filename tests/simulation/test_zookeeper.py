"""How long the virtual ZooKeeper keeps a session, which is what decides whether a lease is short enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.threads import Threads
from tests.simulation.world import Process, World
from tests.simulation.zookeeper import Ensemble, Op, Server
from tests.simulation.zookeeper_client import VirtualClient
from wormhole.coordination.records import Paths

TIMEOUT_S = 2.0
SEEDS = range(40)


class Scene:
    """An ensemble of three, and a client of one of its followers that has made an ephemeral node."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.ensemble = Ensemble(self.world, Threads(self.world), TIMEOUT_S, 3)
        self.process = Process(self.world, "one", "h0", 1, 1.0)
        self.client = self._connected()
        self.client.create_async("/entry", ephemeral=True)
        self.run(1.0)
        assert self.there()

    def _connected(self) -> VirtualClient:
        """A client of a follower."""
        while True:
            client = VirtualClient(self.ensemble, self.process, Paths(""))
            client.begin()
            self.run(0.5)
            if client.server is not self.ensemble.leader:
                return client
            client.stop()

    @property
    def follower(self) -> Server:
        assert self.client.server is not None
        return self.client.server

    def there(self) -> bool:
        return self.ensemble.data("/entry") is not None

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def ends(self) -> float:
        """When the session ends, at last."""
        while self.there():
            self.run(0.01)
        return self.world.now

    def ask(self, ask: Callable[[VirtualClient], Any]) -> Any:
        """What is answered within a third of a session; ``None``: nothing."""
        result = ask(self.client)
        self.run(TIMEOUT_S / 3)
        return result.value


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_lives_on_for_its_timeout_after_the_last_request_of_a_client_that_is_cut_off(seed: int) -> None:
    scene = Scene(seed)
    scene.run(scene.world.chance.random() * TIMEOUT_S)
    asked = scene.world.now
    scene.client.sync_async("/")
    scene.run(0.01)
    scene.client.partition(hears=True, speaks=False)
    ended = scene.ends()
    assert TIMEOUT_S <= ended - asked <= TIMEOUT_S * (1 + 1 / 4 + 1 / 2) + 0.02, "a report later, and a tick later"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_whose_follower_is_isolated_counts_from_its_last_report(seed: int) -> None:
    """A request that is passed on to the leader does not count, and one that is answered alone even less."""
    scene = Scene(seed)
    world = scene.world
    for _ in range(12):
        asked = world.now
        scene.client.sync_async("/")
        scene.run(TIMEOUT_S / 6)
    scene.follower.isolate(10.0, 10.0)
    while scene.there() and world.now < asked + TIMEOUT_S * 3:
        scene.client.exists_async("/entry")
        scene.run(TIMEOUT_S / 6)
    assert asked + TIMEOUT_S / 2 <= world.now <= asked + TIMEOUT_S * 2


def test_an_isolated_follower_answers_reads_and_no_sync() -> None:
    scene = Scene(1)
    scene.follower.isolate(5.0, 5.0)
    scene.ensemble.commit(None, None, "set", [Op("set", "/entry", b"new")])
    data, _ = scene.ask(lambda client: client.get_async("/entry"))
    assert data == b"", "as it was"
    assert scene.ask(lambda client: client.sync_async("/")) is None


def test_a_follower_catches_up_when_it_is_no_longer_isolated() -> None:
    scene = Scene(1)
    scene.follower.isolate(0.5, 5.0)
    asked = scene.client.set_async("/entry", b"ours")
    scene.run(0.4)
    assert not asked.ready()
    scene.ensemble.commit(None, None, "set", [Op("set", "/entry", b"new")])
    scene.run(0.4)
    assert asked.successful()
    data, stat = scene.ask(lambda client: client.get_async("/entry"))
    assert (data, stat.version) == (b"ours", 2)


def test_a_follower_that_notices_closes_its_connections() -> None:
    scene = Scene(1)
    former = scene.follower
    former.isolate(20.0, 0.5)
    scene.run(0.6)
    for _ in range(20):
        scene.run(1.0)
        if scene.client.connected:
            break
    assert scene.client.server is not former
