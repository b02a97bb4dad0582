"""Where flows of a publisher begin: no stored marker passes the birth of a shard that is not registered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

from publisher.publisher import Publisher
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.integration.publisher.conftest import World
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.errors import CoordinationLost
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.marker_store import (
    UNASKED,
    FlowControl,
    FlowKey,
    MarkerWrite,
    StoredFlow,
    start_key,
)

KEY, NEW, START = ("app", "log.t"), ("app", "log.new"), start_key("app", "log")


async def heard(subscriber: ScriptedSubscriber) -> list[object]:
    """Keys of the next batch."""
    return [update.key[0] for update in subscriber.updates(await subscriber.hears_later("batch"))]


async def test_the_first_shard_of_all_may_be_born_while_no_publisher_runs(world: World) -> None:
    world.application(start="latest")
    async with world.publisher():
        await eventually(lambda: START in world.markers.records, "registered")
    world.commit("n", table="new")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await s1.hears("hello")
        await s1.accepts(await s1.hears("assign"))
        assert await heard(s1) == [b"n"]


async def test_log_after_a_start_is_kept_until_there_is_a_flow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[LogPosition] = []
    monkeypatch.setattr(world.source, "release", released.append)
    world.application(start="latest")
    start = world.source.latest()
    async with world.publisher() as publisher:
        await eventually(lambda: START in world.markers.records, "registered")
    world.source.rotate()
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.log.fleet.lead, "the lead")
        await publisher.housekeeping.release()
    assert released[-1] == start.order


@pytest.mark.usefixtures("first")
async def test_a_shard_that_one_application_finds_is_everyones(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    """What the source shows while an application is configured is not new any more when the lead reads of it."""
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    monkeypatch.setattr(world.source, "shards", lambda: frozenset({"log.t", "log.new"}))
    world.application("other")
    await eventually(lambda: NEW in publisher.assigner.flows, "registered for the one that was there")
    assert ("other", "log.new") in publisher.assigner.flows


async def test_no_marker_is_stored_past_the_birth_of_an_unregistered_shard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would begin the shard behind its first updates. It is tried again until the store takes it."""
    register = MemoryMarkerStore.register

    def away(
        self: MemoryMarkerStore,
        flow: FlowKey,
        marker: Datamarker,
        start: str,
        epoch: int = 0,
        control: FlowControl = UNASKED,
    ) -> StoredFlow:
        if flow == NEW:
            raise CoordinationLost("the store is away")
        return register(self, flow, marker, start, epoch, control)

    world.application()
    begin = world.source.latest()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        with monkeypatch.context() as outage:
            outage.setattr(MemoryMarkerStore, "register", away)
            await world.register(s1)
            await s1.hears("hello")
            await s1.accepts(await s1.hears("assign"))
            await s1.processed(await s1.hears("batch"))
            world.commit("n", table="new")
            await eventually(lambda: "app" in publisher.applications.unserved, "the birth could not be stored")
            last = world.commit("b")
            await s1.processed(await s1.hears_later("batch"))
            while True:
                offered = await s1.hears_later("datamarker")
                await s1.acks(offered)
                if offered.datamarker.marker.order.offset == last.order.offset:
                    break
            flow = publisher.assigner.flows[KEY]
            await eventually(lambda: flow.delivery.marker == last, "the ack")
            await publisher.records.markers.flush()
            assert world.markers.records[KEY].marker.order == begin.order
        await eventually(lambda: NEW in publisher.assigner.flows, "tried again")
        assert world.markers.records[NEW].marker.order == begin.order
        await publisher.records.markers.flush()
        assert world.markers.records[KEY].marker == last
        await s1.accepts(await s1.hears_later("assign"))
        assert await heard(s1) == [b"n"]


async def test_markers_are_stored_while_a_known_application_is_configured_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held back, they would be refused when the change raises the epoch, and repeated after a restart."""
    reached, gate = asyncio.Event(), threading.Event()
    loop, load = asyncio.get_running_loop(), MemoryMarkerStore.load

    def slow(self: MemoryMarkerStore, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        loop.call_soon_threadsafe(reached.set)
        gate.wait(PATIENCE_S)
        return load(self, application)

    world.application()
    marker = world.commit("a")
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        monkeypatch.setattr(MemoryMarkerStore, "load", slow)
        try:
            world.application(tables=["t"])
            await reached.wait()
            publisher.records.markers.put(MarkerWrite(KEY, 0, marker))
            await publisher.records.markers.flush()
            assert world.markers.records[KEY].marker == marker
        finally:
            gate.set()


async def test_an_application_that_is_removed_while_it_is_registered_gets_no_flow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would move its markers, and the log would be kept for them for ever."""
    register = MemoryMarkerStore.register
    reached, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(
        self: MemoryMarkerStore,
        flow: FlowKey,
        marker: Datamarker,
        start: str,
        epoch: int = 0,
        control: FlowControl = UNASKED,
    ) -> StoredFlow:
        if flow == NEW:
            loop.call_soon_threadsafe(reached.set)
            gate.wait(PATIENCE_S)
        return register(self, flow, marker, start, epoch, control)

    monkeypatch.setattr(MemoryMarkerStore, "register", slow)
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows and publisher.log.fleet.lead, "served")
        world.commit("n", table="new")
        await reached.wait()
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await eventually(lambda: "app" not in publisher.applications, "removed")
        gate.set()
        await _idle(publisher)
        assert not publisher.assigner.flows
        assert not publisher.applications.unserved


async def _idle(publisher: Publisher) -> None:
    await eventually(lambda: publisher.applications.idle, "nothing is under way")
