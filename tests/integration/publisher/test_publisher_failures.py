"""What goes wrong at a subscriber or in the log, as a publisher and its other subscribers see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from publisher import publisher as publisher_module
from publisher.publisher import Publisher
from publisher.push.stages import PublisherFlowState
from tests.integration.publisher.conftest import World, world_of_either_direction
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.errors import ConfigError
from wormhole.wire.v1 import push_pb2

world = world_of_either_direction
once = pytest.mark.parametrize("world", [False], indirect=True)
"""Which side dials makes no difference here."""


# --- what goes wrong on one side only


@once
async def test_a_log_is_given_up_although_its_source_does_not_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its datastore does not answer: that may be why another publisher is to serve the log."""
    monkeypatch.setattr(publisher_module, "_STOPS_S", 0.05)
    owned: list[bool] = []

    async def stop_source() -> None:
        owned.append(publisher.ownership.sole())
        await asyncio.Event().wait()

    async with world.publisher(stop_source) as publisher:
        await eventually(publisher.ownership.sole, "it owns the log")
    assert owned == [True]
    assert not publisher.ownership.sole()


@pytest.mark.usefixtures("first")
async def test_who_left_and_is_still_listed_is_served_again_when_it_comes_back(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    """The static form: the file lists the subscriber for ever, and nobody registers."""
    await world.register(s1, started=0.0)
    await taken(s1)
    await s1.says(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING, message="bye"))
    flow = publisher.assigner.flows[KEY]
    await eventually(lambda: flow.state(frozenset()) is PublisherFlowState.UNASSIGNED, "let go")
    await s1.hears_later("hello")
    assert (await s1.hears("assign")).assign.epoch == 2


@once
@pytest.mark.usefixtures("first")
async def test_resend_begins_again_at_the_stored_marker(
    world: World, s1: ScriptedSubscriber, assign: push_pb2.Assign
) -> None:
    await s1.hears("batch")
    failed = push_pb2.Failed(flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.RESEND)
    await s1.says(failed=failed)
    again = await s1.accepts(await s1.hears_later("assign"))
    assert again.epoch == 2
    assert keys(s1, await s1.hears("batch")) == [b"a"]


@pytest.mark.usefixtures("first")
async def test_a_breach_of_the_protocol_is_answered_and_the_stream_begins_anew(
    world: World, s1: ScriptedSubscriber, assign: push_pb2.Assign
) -> None:
    await s1.hears("batch")
    await s1.says(progress=push_pb2.Progress(flow=assign.flow, epoch=assign.epoch, number=99))
    goodbye = (await s1.hears_later("goodbye")).goodbye
    assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert "batch 99 was never sent" in goodbye.message
    await eventually(lambda: s1.connections == 2, "dialled again")
    assert (await taken(s1)).epoch == 2


@once
async def test_one_application_that_cannot_be_served_is_reported_and_the_others_are(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.application("broken", start="9/9/9")
    world.application("odd", where="nonsense ===")
    world.application()
    world.commit("a")
    with caplog.at_level(logging.ERROR):
        async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
            await world.register(s1)
            await taken(s1)
            assert keys(s1, await s1.hears("batch")) == [b"a"]
            assert set(publisher.applications.unserved) == {"broken", "odd"}
    told = [record.getMessage() for record in caplog.records if "not served" in record.getMessage()]
    assert len(told) == 2


@once
async def test_subscribers_are_found_although_a_search_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = MemoryCoordinator.watch_subscribers
    asked: list[str] = []

    async def refused() -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        if asked:
            raise ConfigError("access is refused")
        yield ()

    def refused_at_first(self: MemoryCoordinator, application: str) -> AsyncIterator[tuple[SubscriberInfo, ...]]:
        asked.append(application)
        return refused() if len(asked) == 1 else watch(self, application)

    monkeypatch.setattr(MemoryCoordinator, "watch_subscribers", refused_at_first)
    world.application()
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await s1.hears("hello")


async def test_an_application_that_is_configured_no_longer_is_let_go_and_its_marker_stays(world: World) -> None:
    world.settings["grace_period"] = 6.0
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await s1.hears_later("revoke")
        await s1.releases(assign)
        await eventually(lambda: not publisher.assigner.streams(), "hung up")
        assert KEY in world.markers.records


@once
@pytest.mark.usefixtures("first", "assign")
async def test_what_is_sent_after_a_pause_of_the_log_is_not_late(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    flow = publisher.assigner.flows[KEY]
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears("datamarker"))
    await eventually(lambda: flow.delivery.durable.order.offset > 0, "acknowledged")
    flow.holding.progressed(1.0)  # long ago
    world.commit("b")
    await s1.hears_later("batch")
    assert flow.holding.progressed_at > 1.0
