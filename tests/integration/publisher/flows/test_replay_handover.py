"""The end of a mass replay, and what operators do meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from publisher.flows.delivery_counter import DeliveryCounter
from publisher.publisher import Publisher
from publisher.stores.markers.memory import MemoryMarkerStore
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.flows.replay_steps import (
    Status,
    client,
    flow_of,
    held,
    lets_go,
    opened,
    refused,
    state,
    stored,
)
from tests.integration.publisher.operate.changes import request
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.eventually import eventually
from tests.support.replaying import ReplayClient
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import FlowControl
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import admin_pb2, push_pb2

# --- the end -----------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_log_that_no_longer_reaches_back_is_reported_with_the_range(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    world.commit("b")
    world.commit("c")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        world.source.purge()
        world.commit("d")
        reply = await replay.finishes(first)
        assert not reply.reaches
        assert (reply.purged.first_missing, reply.purged.last_missing) == ("2", "3")
        assert marker_from_message(reply.purged.earliest) == world.source.earliest()
        assert reply.replay.state == "replaying"
        assert world.markers.records[KEY].marker == first  # it was acknowledged all the same
        reply = await replay.finishes(first, accept_gap=True)
        assert (reply.purged.first_missing, reply.purged.last_missing) == ("2", "3")
        assert not reply.HasField("replay")
        await s1.accepts(await s1.hears("assign"))
        loss = (await s1.hears("data_loss")).data_loss
        assert (loss.kind, loss.first_missing, loss.last_missing) == (push_pb2.DataLoss.PURGED, "2", "3")


async def test_another_history_of_the_log_is_reported_as_a_gap_without_a_range(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        world.source.restore(first)
        reply = await replay.finishes(second)
        assert (reply.purged.first_missing, reply.purged.last_missing) == ("", "")
        assert reply.purged.message
        assert reply.replay.state == "replaying"


# --- operators ---------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_paused_flow_is_taken_and_opened_when_it_is_resumed(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    await world.register(s1)
    replay = await client(publisher)
    control = operated(publisher).control
    assign = await taken(s1)
    await control.change(request("pause"))
    await lets_go(s1, assign)
    await eventually(lambda: not flow_of(publisher).releasing, "the publisher heard that it was released")
    await replay.begin()
    assert "paused by maria@ops" in (await replay.tries_to_open()).cause
    await control.change(request("resume"))
    await replay.opens()
    notes = (await control.change(request("pause"))).notes
    assert any("replay r1 waits" in note for note in notes)
    assert (await refused(replay.advances(first))).status is Status.ABORTED
    assert "paused by maria@ops" in (await replay.tries_to_open()).cause
    await control.change(request("resume"))
    await replay.opens()
    await control.change(request("skip", update_id="mem:1:0"))
    assert (await refused(replay.advances(first))).status is Status.ABORTED
    assert (await replay.opens()).skip == ["mem:1:0"]
    await replay.advances(first)
    await eventually(lambda: not world.markers.records[KEY].control.skip, "it is behind the datamarker")


async def test_a_changed_filter_is_reported_to_the_next_task(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    replay = await held(world, publisher, s1)
    assert "upsert" not in (await replay.opens()).filter
    before = flow_of(publisher).filter.hash
    world.application(where="op == 'upsert'")
    await eventually(lambda: flow_of(publisher).filter.hash != before, "configured")
    assert (await refused(replay.advances(first))).status is Status.ABORTED
    assert "upsert" in (await replay.opens()).filter
    await replay.advances(first)
    assert world.markers.records[KEY].filter_hash == flow_of(publisher).filter.hash


@pytest.mark.usefixtures("first")
async def test_operators_do_not_move_what_is_replayed(world: World, publisher: Publisher) -> None:
    replay = await client(publisher)
    control = operated(publisher).control
    await replay.begin()
    for asked in (request("set_marker", place="latest"), request("forget")):
        error = await refused(control.change(asked))
        assert error.status is Status.FAILED_PRECONDITION
        assert "wormholectl replay --cancel r1" in str(error)
    assert (await refused(control.change(request("accept_loss")))).status is Status.FAILED_PRECONDITION
    assert (await refused(control.change(request("resume")))).status is Status.FAILED_PRECONDITION


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("asked", [request("set_marker", place="earliest"), request("forget")])
async def test_a_flow_that_needs_a_replay_may_be_moved_instead(
    world: World, asked: admin_pb2.ChangeRequest, publisher: Publisher
) -> None:
    replay = await client(publisher)
    await replay.begin()
    world.source.purge()
    await replay.cancels()
    await operated(publisher).control.change(asked)
    assert stored(world) is None
    assert state(publisher) == "unassigned"
    assert world.markers.records[KEY].marker == world.source.earliest()


@pytest.mark.usefixtures("first")
async def test_who_accepts_the_loss_of_what_needs_a_replay_hears_what_is_missing(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    replay = await client(publisher)
    await replay.begin()
    world.source.purge()
    await replay.cancels()
    await world.register(s1)
    reply = await operated(publisher).control.change(request("accept_loss"))
    assert stored(world) is None
    assert reply.before.state == "needs_replay"
    await taken(s1)
    assert (await s1.hears("data_loss")).data_loss.first_missing == "1"


@pytest.mark.usefixtures("first")
async def test_a_flow_at_which_a_handler_gave_up_is_tried_again(
    world: World, s1: ScriptedSubscriber, publisher: Publisher, assign: push_pb2.Assign
) -> None:
    await s1.hears("batch")
    failed = push_pb2.Failed(
        flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.HANDLER, update_id="mem:1:0", message="no"
    )
    await s1.says(failed=failed)
    replay = await client(publisher)
    await eventually(lambda: flow_of(publisher).holding.halted_at, "stands")
    await replay.begin()
    assert (await replay.opens()).subscriber == "s1"


@pytest.mark.usefixtures("first")
async def test_an_application_that_is_removed_and_comes_back_is_replayed_still(
    world: World, publisher: Publisher
) -> None:
    replay = await client(publisher)
    await replay.begin()
    del world.coordination.applications["app"]
    world.coordination.signal.notify()
    await eventually(lambda: KEY not in publisher.assigner.flows, "forgotten")
    assert (await refused(replay.renews())).status is Status.NOT_FOUND
    publisher.replays.look(0.0)
    world.application()
    await eventually(lambda: KEY in publisher.assigner.flows, "served again")
    assert state(publisher) == "replaying"
    assert (await replay.renews()).replay.replay == "r1"


async def test_what_another_publisher_gave_to_a_newer_task_is_left_alone(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    replay = await opened(world, publisher, s1, mode=admin_pb2.LATEST)
    record = world.markers.records[KEY]
    assert record.control.replay is not None
    elsewhere = FlowControl(replay=replace(record.control.replay, attempts=7))
    world.markers.records[KEY] = replace(record, control=elsewhere)
    assert (await refused(replay.advances(progress=b"old"))).status is Status.ABORTED
    assert world.markers.records[KEY].control == elsewhere
    assert (await refused(replay.finishes(first))).status is Status.ABORTED


async def test_a_store_that_fails_leaves_everything_as_it_was(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch, first: Datamarker, publisher: Publisher
) -> None:
    replay = await client(publisher)

    def fails(*_: object) -> None:
        raise MarkerStoreError("the disk is full")

    monkeypatch.setattr(MemoryMarkerStore, "set_control", fails)
    with pytest.raises(MarkerStoreError):
        await replay.begin()
    assert stored(world) is None
    await world.register(s1)
    await lets_go_after_undo(monkeypatch, replay, s1)
    await replay.opens()
    monkeypatch.setattr(MemoryMarkerStore, "store", fails)
    with pytest.raises(MarkerStoreError):
        await replay.finishes(first)
    assert state(publisher) == "replaying"
    monkeypatch.undo()
    assert (await replay.finishes(first)).reaches


@pytest.mark.usefixtures("first")
async def test_a_datamarker_that_is_missing_is_reported_and_nothing_else_is_taken_for_that(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    replay = await held(world, publisher, s1)

    def fails(*_: object) -> None:
        raise KeyError(KEY)

    for broken in ("raise_epoch", "set_control"):
        with monkeypatch.context() as patched:
            patched.setattr(MemoryMarkerStore, broken, fails)
            assert "the datamarker of app/log.t is missing" in (await refused(replay.opens())).message
    monkeypatch.setattr(DeliveryCounter, "open_replay", fails)
    with pytest.raises(KeyError):
        await replay.opens()


async def lets_go_after_undo(monkeypatch: pytest.MonkeyPatch, replay: ReplayClient, s1: ScriptedSubscriber) -> None:
    monkeypatch.undo()
    assign = await taken(s1)
    await replay.begin()
    await lets_go(s1, assign)


@pytest.mark.usefixtures("first")
async def test_a_flow_that_is_held_at_missing_log_is_replayed_over_it(world: World, s1: ScriptedSubscriber) -> None:
    second = world.commit("b")
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        world.source.purge()
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("data_loss")
        replay = await client(publisher)
        assert not (await replay.begin()).reaches
        await lets_go(s1, assign)
        await replay.opens()
        assert (await replay.finishes(second)).reaches
        again = await s1.accepts(await s1.hears("assign"))
        assert marker_from_message(again.marker) == second
        world.commit("c")
        assert keys(s1, await s1.hears("batch")) == [b"c"]


@pytest.mark.usefixtures("first")
async def test_the_live_flow_goes_first_to_whom_a_task_may_still_push(world: World, s1: ScriptedSubscriber) -> None:
    async with scripted_subscriber("app", "s2") as s2, world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await world.register(s2)
        await s2.hears("hello")
        world.application(pin={"log.t": "s2"})
        app = publisher.assigner._applications["app"]
        await eventually(lambda: app.wanted.get("log.t") == "s2", "assigned")
        assert (await replay.cancels()).reaches
        assign = await s1.accepts(await s1.hears("assign"))
        assert s2.heard_nothing("heartbeat")
        await lets_go(s1, assign)
        assert (await s2.hears("assign")).assign.epoch > assign.epoch
