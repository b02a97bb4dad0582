"""An application that stores its datamarker with its effects, and the number of the last move beside it, is moved once:
whatever an operator does, and although the publisher dies before an acknowledgement of that is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from publisher.flows import housekeeping
from publisher.push.stages import Stage
from publisher.stores.markers.memory import MemoryMarkerStore
from subscriber_sdk import (
    DataLoss,
    Datamarker,
    KeptMarker,
    LossDecision,
    NoticeKind,
    ShardNotice,
    Subscriber,
    Update,
    serve,
)
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import request, served
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import SubscriberInfo


class Keeping(Subscriber):
    """``keys`` and ``kept`` are stored together, at datamarkers; ``assigned``: the moves that were reported."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.kept: KeptMarker | None = None
        self.assigned: list[tuple[bool, int]] = []
        self.losses = 0
        self._open: list[str] = []

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        self._open.clear()
        if notice.kind is not NoticeKind.ASSIGNED:
            return None
        self.assigned.append((notice.rewound, notice.move))
        if self.kept is not None and self.kept.move >= notice.move:
            return self.kept
        assert notice.marker is not None
        assert (self.kept is None) is not notice.acknowledged
        self.kept = KeptMarker(notice.marker, notice.move)
        return None

    async def on_update(self, update: Update) -> None:
        assert isinstance(update.key[0], bytes)
        self._open.append(update.key[0].decode())

    async def on_datamarker(self, marker: Datamarker) -> None:
        assert self.kept is not None
        self.kept = replace(self.kept, marker=marker)
        self.keys += self._open
        self._open.clear()

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self._open.clear()

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        self.losses += 1
        return LossDecision.HALT

    async def has(self, *keys: str) -> None:
        """Wait until as many keys are stored; they have to be these."""
        await eventually(lambda: len(self.keys) >= len(keys), "stored")
        assert self.keys == [*keys]


@pytest.fixture
async def keeping(world: World) -> AsyncIterator[Keeping]:
    world.application()
    subscriber = Keeping()
    async with serve(subscriber, application="app", id="s1", listen=f"127.0.0.1:{free_port()}") as running:
        coordinator = MemoryCoordinator(world.coordination)
        await coordinator.start()
        await coordinator.register_subscriber(SubscriberInfo("app", "s1", running.address, 1.0, 1.0))
        yield subscriber


@pytest.fixture(autouse=True)
def log_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_RELEASE_EVERY_S", 1e9)


def store_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on publishers die before they store an acknowledgement."""
    monkeypatch.setattr(MemoryMarkerStore, "store", lambda *_: ())


async def live_and_die(world: World, keeping: Keeping, *keys: str) -> None:
    """Two publishers, each of which delivers one more update and dies."""
    for new in ("y", "z"):
        async with world.publisher():
            world.commit(new)
            await keeping.has(*(keys := (*keys, new)))


@pytest.mark.parametrize(("to", "again"), [("a", ("b", "c")), ("latest", ())], ids=["backwards", "forwards"])
async def test_markers_set_moves_it_once(
    to: str, again: tuple[str, ...], world: World, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"a": str(world.commit("a").order), "latest": "latest"}
    async with world.publisher() as publisher:
        last = world.commit("b")
        await keeping.has("a", "b")
        await eventually(lambda: world.markers.records[KEY].marker == last, "acknowledged and stored")
        control, flow = await served(publisher), publisher.assigner.flows[KEY]
        await control.change(request("pause"))
        await eventually(lambda: flow.cause.startswith("paused"), "released")
        world.commit("c")
        store_nothing_more(monkeypatch)
        await control.change(request("set_marker", place=places[to]))
        await control.change(request("resume"))
        world.commit("x")
        await keeping.has("a", "b", *again, "x")
    await live_and_die(world, keeping, "a", "b", *again, "x")
    move = world.markers.records[KEY].move
    assert keeping.assigned == [(False, 0), *[(to == "a", move)] * 3], "it is reported each time"


async def test_a_loss_that_is_accepted_is_passed_once(
    world: World, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = world.commit("a")
    async with world.publisher() as publisher:
        await keeping.has("a")
        await eventually(lambda: world.markers.records[KEY].marker == last, "acknowledged and stored")
        world.source.skip()
        world.commit("b")
        control, flow = await served(publisher), publisher.assigner.flows[KEY]
        await eventually(lambda: flow.stage is Stage.DECLINED, "halted")
        store_nothing_more(monkeypatch)
        await control.change(request("accept_loss"))
        await keeping.has("a", "b")
    await live_and_die(world, keeping, "a", "b")
    assert keeping.losses == 1
    assert world.markers.records[KEY].move == 0, "the application made it itself, at the next datamarker"
