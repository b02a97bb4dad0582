"""Mass replays whose driver, publisher or subscriber is silent or comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from publisher.publisher import Publisher
from tests.integration.publisher.conftest import World
from tests.integration.publisher.flows.replay_steps import (
    Status,
    client,
    flow_of,
    held,
    lease_runs_out,
    opened,
    refused,
    state,
    stored,
)
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import ReplayState
from wormhole.wire.markers import marker_from_message

# --- when somebody is silent -------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_lease_that_runs_out_gives_the_flow_back(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(first)
        lease_runs_out(publisher)
        assign = await s1.accepts(await s1.hears("assign"))
        assert marker_from_message(assign.marker) == first
        assert assign.epoch > replay.epoch
        assert keys(s1, await s1.hears("batch")) == [b"b"]
        assert (await refused(replay.advances(first))).status is Status.FAILED_PRECONDITION
        assert (await refused(replay.renews())).status is Status.FAILED_PRECONDITION


@pytest.mark.usefixtures("first")
async def test_who_renews_keeps_the_flow(world: World, publisher: Publisher) -> None:
    replay = await client(publisher)
    await replay.begin(lease_s=3000)
    lease_runs_out(publisher)
    assert 2000 < (await replay.renews()).replay.lease_left_s <= 3000
    for _ in range(3):
        publisher.replays.look(publisher.clock.monotonic())
        await asyncio.sleep(0)
    assert stored(world) is not None


@pytest.mark.usefixtures("first")
async def test_a_renewal_while_the_log_is_looked_at_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    replay = await client(publisher)
    await replay.begin()
    looked = asyncio.Event()
    gap = publisher.replays._gap

    async def slow(marker: Any) -> Any:
        await replay.renews()
        looked.set()
        return await gap(marker)

    monkeypatch.setattr(publisher.replays, "_gap", slow)
    lease_runs_out(publisher)
    await looked.wait()
    await replay.renews()  # answered behind it
    async with publisher.replays.lock(KEY):
        assert stored(world) is not None


async def test_a_flow_whose_log_is_gone_needs_a_replay_and_says_so(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(first)
        world.source.purge()
        lease_runs_out(publisher)
        await eventually(lambda: state(publisher) == "needs_replay", "seen")
        found = stored(world)
        assert found is not None
        assert found.state is ReplayState.NEEDS_REPLAY
        assert (await refused(replay.advances(first))).status is Status.FAILED_PRECONDITION
        assert (await refused(replay.renews())).status is Status.FAILED_PRECONDITION
    async with world.publisher() as publisher:  # it is so after a restart too
        await s1.hears_later("hello")
        replay = await client(publisher)
        assert state(publisher) == "needs_replay"
        assert "wormholectl replay --resume r1" in str(publisher.replays.cause(flow_of(publisher)))
        assert (await replay.cancels(as_operator=True)).replay.state == "needs_replay"  # looked at again
        assert s1.heard_nothing("heartbeat")
        assert (await replay.begin()).replay.state == "held"
        assert marker_from_message((await replay.opens()).marker) == first  # it goes on where it was


async def test_another_replay_may_take_over_what_needs_one(
    world: World, first: Datamarker, publisher: Publisher
) -> None:
    one, other = await client(publisher), await client(publisher, "r2")
    await one.begin()
    world.source.purge()
    assert (await one.cancels()).replay.state == "needs_replay"
    assert (await other.begin()).replay.replay == "r2"
    assert (await refused(one.begin())).status is Status.FAILED_PRECONDITION
    assert not (await other.begin(preview=True)).reaches
    assert first.order == world.source.earliest().order


@pytest.mark.usefixtures("first")
async def test_a_log_that_cannot_be_reached_is_asked_again_and_seen(world: World, publisher: Publisher) -> None:
    replay = await client(publisher)
    await replay.begin()
    world.source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        await replay.cancels()
    assert stored(world) is not None
    lease_runs_out(publisher)
    await eventually(lambda: "is not known" in str(publisher.replays.cause(flow_of(publisher))), "seen")
    world.source.set_reachable(True)
    await eventually(lambda: stored(world) is None, "given back")


async def test_the_lease_begins_anew_with_another_publisher_and_the_ticket_stays_good(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(first)
        ticket, epoch = replay.ticket, replay.epoch
    async with world.publisher() as publisher:
        await s1.hears("hello")
        replay = await client(publisher)
        replay.ticket, replay.epoch = ticket, epoch
        assert (await replay.renews()).replay.lease_left_s > 29 * FAST
        assert (await refused(replay.advances(first))).status is Status.ABORTED  # nothing of this epoch is known here
        told = await replay.opens()
        assert told.epoch > epoch
        assert marker_from_message(told.marker) == first
        assert (await replay.finishes(first)).reaches
        await s1.hears_later("assign")


@pytest.mark.usefixtures("first")
async def test_a_driver_that_never_comes_back_after_a_restart_loses_the_flow(
    world: World, s1: ScriptedSubscriber
) -> None:
    async with world.publisher() as publisher:
        await (await client(publisher)).begin()
    async with world.publisher() as publisher:
        await world.register(s1)
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        await eventually(lambda: publisher.replays.run_of(flow_of(publisher)), "its lease began")
        lease_runs_out(publisher)
        await taken(s1)


@pytest.mark.usefixtures("first")
async def test_a_replay_whose_lease_ran_out_is_not_taken_up_as_a_new_one(world: World) -> None:
    """Nothing was pushed yet: a new one would begin at the flow's own datamarker."""
    async with world.publisher() as publisher:
        replay = await client(publisher)
        begun = (await replay.begin(begin=flow_of(publisher).delivery.marker)).replay
    async with world.publisher() as publisher:
        other = await client(publisher)
        taken_up = (await other.begin(resumes=begun.started_s)).replay
        assert (taken_up.started_s, taken_up.begin) == (begun.started_s, begun.begin)
        lease_runs_out(publisher)
        await eventually(lambda: stored(world) is None, "it is live")
        error = await refused(other.begin(resumes=begun.started_s))
        assert (error.status, "the flow is live" in str(error)) == (Status.FAILED_PRECONDITION, True)
        assert stored(world) is None


# --- the subscriber ----------------------------------------------------------------------------------------------------  # noqa: E501


async def test_the_next_task_gets_the_subscriber_at_which_the_former_one_may_still_run(
    world: World, s1: ScriptedSubscriber
) -> None:
    """Until its connection here broke for so long that no handler runs there any more."""
    world.settings["grace_period"] = world.settings["handler_timeout"] = 6.0
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s2") as s2, world.publisher() as publisher:
        replay = await held(world, publisher, s1)
        assert (await replay.opens()).subscriber == "s1"
        assert (await replay.renews()).flow.subscriber == "s1"
        await world.register(s2)
        await s2.hears("hello")
        world.application(pin={"log.t": "s2"})
        app = publisher.assigner._applications["app"]
        await eventually(lambda: app.wanted.get("log.t") == "s2", "assigned")
        assert (await replay.opens()).subscriber == "s1"
        s1.welcomes = False
        s1.hang_up()
        await eventually(lambda: not publisher.assigner.streams()[0].connected, "lost")
        assert "may still run at s1" in (await replay.tries_to_open()).cause
        assert (await replay.opens()).subscriber == "s2"


@pytest.mark.usefixtures("first")
async def test_without_a_subscriber_there_is_only_a_cause(world: World, publisher: Publisher) -> None:
    replay = await client(publisher)
    await replay.begin()
    assert (await replay.tries_to_open()).cause == "no subscriber is there [no-subscriber]"
    assert (
        str(publisher.replays.cause(flow_of(publisher)))
        == "held for replay r1 by maria@ops: no subscriber is there [flow-replaying]"
    )
