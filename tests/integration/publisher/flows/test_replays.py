"""Mass replays as a driver, its tasks, subscribers and operators see them: a publisher over memory parts, and a
replay by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from publisher.flows.refused_error import RefusedError
from publisher.publisher import Publisher
from publisher.stores.markers.memory import MemoryMarkerStore
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
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.audit.delivery_counts import DeliveryCounts, RangeKind
from wormhole.filters import Filter
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_message, position_from_message, position_to_message
from wormhole.wire.v1 import admin_pb2, push_pb2

# --- from live to live -------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_flow_is_held_replayed_and_goes_live_where_the_replay_ended(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    second = world.commit("b")
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        replay = await client(publisher)
        begun = await replay.begin(until=second)
        assert (begun.replay.state, begun.replay.replay, begun.reaches) == ("held", "r1", True)
        assert begun.flow.state == "releasing"
        waits = await replay.tries_to_open()
        assert not waits.HasField("opened")
        assert waits.cause == "s1 finishes what it has begun [in-progress]"
        await lets_go(s1, assign)
        opening = await replay.opens()
        assert (opening.epoch, opening.subscriber, opening.address) == (2, "s1", s1.address)
        assert (opening.publisher, opening.dataset, opening.copy, opening.log) == (
            publisher.process.identity,
            "shop",
            "main",
            "log",
        )
        assert state(publisher) == "replaying"
        told = await replay.advances(first, updates=1, size=10)
        assert world.markers.records[KEY].marker == first
        assert (told.replay.updates, told.replay.bytes, told.replay.attempts) == (1, 10, 1)
        assert told.replay.opener == "task"
        assert told.flow.cause == "replay r1 by maria@ops pushes to s1 [flow-replaying]"
        assert s1.heard_nothing("heartbeat")  # nothing of the log, and no assignment
        done = await replay.finishes(second)
        assert done.reaches
        assert not done.HasField("replay")
        assert stored(world) is None
        again = await s1.accepts(await s1.hears("assign"))
        assert (again.epoch, marker_from_message(again.marker)) == (3, second)
        world.commit("c")
        assert keys(s1, await s1.hears("batch")) == [b"c"]
        assert (await replay.finishes(second)).reaches  # as when the answer was lost
    assert [(entry.who, entry.what) for entry in world.coordination.history] == [
        ("maria@ops", "replay"),
        ("replay r1", "replay-finish"),
        ("replay r1", "replay-finish"),
    ]


async def test_the_datamarker_is_set_back_when_the_first_task_opens(world: World, s1: ScriptedSubscriber) -> None:
    world.application(start="latest")
    first = world.commit("a")
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        assert flow_of(publisher).delivery.marker.order == second.order
        await replay.begin(begin=first)
        assert world.markers.records[KEY].marker.order == second.order
        await world.register(s1)
        told = await replay.opens()
        assert marker_from_message(told.marker) == first
        assert world.markers.records[KEY].marker == first
        await replay.advances(second)
        told = await replay.opens()  # another attempt goes on, it does not begin again
        assert marker_from_message(told.marker) == second


async def test_a_task_learns_that_its_replay_set_the_datamarker_back_until_something_is_acknowledged(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application(start="earliest")
    first, second = world.commit("a"), world.commit("b")
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.acks(await s1.hears_later("datamarker"))
        await eventually(lambda: world.markers.records[KEY].marker.order == second.order, "stored")
        replay = await client(publisher)
        await replay.begin(begin=first)
        await lets_go(s1, assign)
        assert (await replay.opens()).rewound
        assert (await replay.opens()).rewound, "the next attempt, of which the application has nothing either"
        await replay.advances(first)
        assert not (await replay.opens()).rewound
        assert (await replay.finishes(second)).reaches
        again = (await s1.hears("assign")).assign
        assert (marker_from_message(again.marker), again.rewound) == (second, False)


@pytest.mark.usefixtures("first")
async def test_a_task_whose_replay_begins_at_the_datamarker_learns_of_no_rewind(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    replay = await held(world, publisher, s1)
    assert not (await replay.opens()).rewound


async def test_a_replay_that_is_cancelled_before_an_acknowledgement_leaves_the_flow_rewound(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application(start="latest")
    first = world.commit("a")
    world.commit("b")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin(begin=first)
        await world.register(s1)
        await replay.opens()
        assert (await replay.cancels()).reaches
        again = (await s1.hears_later("assign")).assign
        assert (marker_from_message(again.marker), again.rewound) == (first, True)


@pytest.mark.usefixtures("first")
async def test_a_task_gets_an_epoch_above_the_one_that_its_subscriber_holds(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    replay = await opened(world, publisher, s1)
    reply = await replay.tries_to_open(above=400)
    assert (reply.opened.epoch, world.markers.records[KEY].epoch) == (401, 401)
    with pytest.raises(RefusedError, match="which no flow's epoch comes to"):
        await replay.tries_to_open(above=(1 << 63) - 1)
    assert world.markers.records[KEY].epoch == 401


async def test_a_replay_that_never_opened_leaves_the_flow_as_it_was(world: World) -> None:
    world.application(start="latest")
    first = world.commit("a")
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin(begin=first)
        reply = await replay.cancels()
        assert reply.reaches
        assert not reply.HasField("replay")
        assert world.markers.records[KEY].marker.order == second.order
        assert state(publisher) == "unassigned"
        assert (await replay.cancels(as_operator=True)).reaches  # as when the answer was lost


@pytest.mark.usefixtures("first")
async def test_a_pass_over_the_last_changes_keeps_its_progress_beside_the_marker(
    world: World, s1: ScriptedSubscriber
) -> None:
    last = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1, mode=admin_pb2.LATEST)
        before = world.markers.records[KEY].marker
        reply = await replay.advances(progress=b"\x01\x02")
        assert reply.replay.mode == admin_pb2.LATEST
        assert world.markers.records[KEY].marker == before
        found = stored(world)
        assert found is not None
        assert found.progress == b"\x01\x02"
        assert (await replay.opens()).progress == b"\x01\x02"
        await replay.advances(last)
        assert (await replay.finishes(last)).reaches


def settled(begin: Datamarker, updates: int, life_total: int, **more: Any) -> admin_pb2.Settled:
    """What was settled of one window."""
    window = admin_pb2.SettledWindow(window=0, sent=updates, delivered=updates, hash=7 * updates)
    told = push_pb2.Processed(window=0, updates=life_total)
    place = position_to_message(begin.order)
    return admin_pb2.Settled(begin=place, windows=[window], life=9, processed=[told], **more)


def page(world: World) -> tuple[int, int, int]:
    """Delivered, processed, and processed in part, as stored."""
    found = DeliveryCounts(world.markers.counts.get(KEY)).windows.get((Filter.parse(None).hash, 0))
    return (0, 0, 0) if found is None else (found.delivered.updates, found.processed, found.partial)


async def test_what_a_replay_delivered_is_counted_in_the_write_of_its_datamarker(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch, first: Datamarker
) -> None:
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        begin = world.markers.records[KEY].marker
        await replay.advances(first, settled=settled(begin, 1, 1))
        assert page(world) == (1, 1, 0)
        store = MemoryMarkerStore.store

        def fails(*_: Any) -> Any:
            raise MarkerStoreError("the disk is full")

        monkeypatch.setattr(MemoryMarkerStore, "store", fails)
        with pytest.raises(MarkerStoreError):
            await replay.advances(second, settled=settled(first, 1, 2))
        monkeypatch.setattr(MemoryMarkerStore, "store", store)
        counted_to = (await replay.opens()).counted_to
        assert position_from_message(counted_to) == first.order, "what was not stored is not counted"
        await replay.advances(second, settled=settled(first, 1, 3))
        assert page(world) == (2, 3, 0)
        monkeypatch.setattr(MemoryMarkerStore, "store", fails)
        with pytest.raises(MarkerStoreError):
            await replay.advances(settled=settled(second, 1, 4))
        monkeypatch.setattr(MemoryMarkerStore, "store", store)
        await replay.cancels()
        await s1.hears("assign")
        (window,) = publisher.records.counter.report(admin_pb2.AuditRequest(), [flow_of(publisher)]).windows
        assert (window.delivered, window.processed) == (2, 3), "nor as the live log goes on"


@pytest.mark.usefixtures("first")
async def test_a_replay_of_the_last_changes_stores_its_range(world: World, s1: ScriptedSubscriber) -> None:
    last = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1, mode=admin_pb2.LATEST)
        begin = world.markers.records[KEY].marker
        await replay.advances(progress=b"x", settled=settled(begin, 0, 1, partly=True))
        assert (page(world), DeliveryCounts(world.markers.counts[KEY]).ranges[RangeKind.PARTIAL]) == ((0, 0, 1), {})
        await replay.advances(last, settled=settled(begin, 0, 1, partly=True))
        assert DeliveryCounts(world.markers.counts[KEY]).ranges[RangeKind.PARTIAL] == {
            Filter.parse(None).hash: [(begin.order, last.order)]
        }
        assert (await replay.opens()).HasField("counted_to") is False


# --- two of them -------------------------------------------------------------------------------------------------------  # noqa: E501


@pytest.mark.usefixtures("first")
async def test_of_two_that_begin_at_one_moment_one_is_refused(world: World, publisher: Publisher) -> None:
    one, other = await client(publisher), await client(publisher, "r2")
    answers = await asyncio.gather(one.begin(), other.begin(), return_exceptions=True)
    assert isinstance(answers[0], admin_pb2.ReplayReply)
    assert isinstance(answers[1], RefusedError)
    assert answers[1].status is Status.FAILED_PRECONDITION
    assert "replay r1 by maria@ops has the flow" in str(answers[1])
    assert (await other.begin(preview=True)).replay.replay == "r1"


async def test_who_takes_a_replay_up_puts_the_former_driver_out(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    one = await opened(world, publisher, s1, until=first)
    other = await client(publisher)
    reply = await other.begin(who="john@ops", mode=admin_pb2.LATEST)
    assert (reply.replay.who, reply.replay.mode, reply.replay.state) == ("john@ops", admin_pb2.LOG, "replaying")
    assert marker_from_message(reply.replay.until) == first
    for asked in (one.advances(first), one.renews(), one.tries_to_open(), one.finishes(first), one.cancels()):
        assert (await refused(asked)).status is Status.UNAUTHENTICATED
    await other.opens()
    await other.advances(first)
    assert world.markers.records[KEY].marker == first


async def test_what_a_former_task_says_is_refused(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    replay = await held(world, publisher, s1)
    assert (await refused(replay.advances(first))).status is Status.INVALID_ARGUMENT  # it names no epoch
    replay.epoch = 1
    assert (await refused(replay.finishes(first))).status is Status.FAILED_PRECONDITION  # nothing was opened
    former = (await replay.opens()).epoch
    newest = (await replay.opens()).epoch
    assert newest > former
    replay.epoch = former
    assert (await refused(replay.advances(first))).status is Status.ABORTED
    assert (await refused(replay.finishes(first))).status is Status.ABORTED
    assert world.markers.records[KEY].marker.order.offset == 0
    world.markers.records[KEY] = _raised(world)  # another publisher
    replay.epoch = newest
    assert (await refused(replay.advances(first))).status is Status.ABORTED


def _raised(world: World) -> Any:
    return replace(world.markers.records[KEY], epoch=world.markers.records[KEY].epoch + 1)


async def test_an_earlier_datamarker_is_not_stored(world: World, s1: ScriptedSubscriber, first: Datamarker) -> None:
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(second)
        assert marker_from_message((await replay.advances(first)).flow.marker) == second
        assert (await refused(replay.finishes(first))).status is Status.INVALID_ARGUMENT


async def test_a_task_hears_its_share_of_the_rate_and_the_driver_what_it_heard(
    world: World, s1: ScriptedSubscriber, first: Datamarker, publisher: Publisher
) -> None:
    replay = await opened(world, publisher, s1)
    run = publisher.replays.run_of(flow_of(publisher))
    assert run is not None
    assert (await replay.renews(100.0)).replay.rate == 0.0, "no task was told yet"
    assert (await replay.advances(first)).replay.rate == 100.0
    run.granted_at += 1e6  # time flies here
    assert (await replay.renews(50.0)).replay.rate == 100.0
    assert (await replay.renews()).replay.rate == 50.0, "a task asks"
    run.granted_at -= 10.0
    assert (await replay.renews(50.0)).replay.rate == 0.0, "its task has died"
    for rate in (-1.0, float("inf"), float("nan")):
        assert (await refused(replay.renews(rate))).status is Status.INVALID_ARGUMENT
