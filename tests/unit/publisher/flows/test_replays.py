"""Mass replays as a driver, its tasks, subscribers and operators see them: a publisher over memory parts, and a
replay by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from publisher.flows.delivery_counter import DeliveryCounter
from publisher.flows.refused import RefusedError
from publisher.operate.control import Control
from publisher.operate.replay_requests import ReplayRequests
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.replaying import ReplayClient
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from tests.unit.publisher.conftest import World
from tests.unit.publisher.operate.test_control import FLOW, request
from tests.unit.publisher.test_publisher import KEY, keys, taken
from wormhole.audit.delivery_counts import DeliveryCounts, RangeKind
from wormhole.filters import Filter
from wormhole.model.errors import MarkerStoreError, SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import FlowControl, ReplayControl, ReplayState
from wormhole.wire.markers import marker_from_message, position_from_message, position_to_message
from wormhole.wire.v1 import admin_pb2, push_pb2

Status = grpc.StatusCode


@pytest.fixture
async def s1() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("app", "s1") as subscriber:
        yield subscriber


async def client(publisher: Publisher, replay: str = "r1") -> ReplayClient:
    """The publisher knows its flow; a replay of it."""
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    requests = ReplayRequests(publisher)

    async def ask(asked: admin_pb2.ReplayRequest) -> admin_pb2.ReplayReply:
        return await requests.replay(asked, lambda: "")

    return ReplayClient(ask, FLOW, replay, lease_s=30.0 * FAST)


async def refused(asked: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await asked
    return caught.value


def stored(world: World) -> ReplayControl | None:
    return world.markers.records[KEY].control.replay


def flow_of(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[KEY]


def state(publisher: Publisher) -> str:
    return flow_of(publisher).state(publisher.lead_flows()).value


def lease_runs_out(publisher: Publisher) -> None:
    """The driver is not heard any more."""
    run = publisher.replays.run_of(flow_of(publisher))
    assert run is not None
    run.until = 0.0


async def lets_go(subscriber: ScriptedSubscriber, assign: push_pb2.Assign) -> None:
    await subscriber.hears_later("revoke")
    await subscriber.releases(assign)


async def held(world: World, publisher: Publisher, s1: ScriptedSubscriber, **begin: Any) -> ReplayClient:
    """A replay of the flow that s1 had."""
    await world.register(s1)
    assign = await taken(s1)
    replay = await client(publisher)
    await replay.begin(**begin)
    await lets_go(s1, assign)
    return replay


async def opened(world: World, publisher: Publisher, s1: ScriptedSubscriber, **begin: Any) -> ReplayClient:
    """As :func:`held`, and a task of it pushes."""
    replay = await held(world, publisher, s1, **begin)
    await replay.opens()
    return replay


# --- from live to live -------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_flow_is_held_replayed_and_goes_live_where_the_replay_ended(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    first = world.commit("a")
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
        assert waits.cause == "s1 finishes what it has begun"
        await lets_go(s1, assign)
        opening = await replay.opens()
        assert (opening.epoch, opening.subscriber, opening.address) == (2, "s1", s1.address)
        assert (opening.publisher, opening.dataset, opening.copy, opening.log) == (
            publisher.identity,
            "shop",
            "main",
            "log",
        )
        assert state(publisher) == "replaying"
        told = await replay.advances(first, updates=1, size=10)
        assert world.markers.records[KEY].marker == first
        assert (told.replay.updates, told.replay.bytes, told.replay.attempts) == (1, 10, 1)
        assert told.replay.opener == "task"
        assert told.flow.cause == "replay r1 by maria@ops pushes to s1"
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
        assert flow_of(publisher).marker.order == second.order
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


async def test_a_task_whose_replay_begins_at_the_datamarker_learns_of_no_rewind(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application(start="earliest")
    world.commit("a")
    async with world.publisher() as publisher:
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


async def test_a_task_gets_an_epoch_above_the_one_that_its_subscriber_holds(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application(start="earliest")
    world.commit("a")
    async with world.publisher() as publisher:
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


async def test_a_pass_over_the_last_changes_keeps_its_progress_beside_the_marker(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    world.commit("a")
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
    """Of one window."""
    window = admin_pb2.SettledWindow(window=0, sent=updates, delivered=updates, hash=7 * updates)
    told = push_pb2.Processed(window=0, updates=life_total)
    place = position_to_message(begin.order)
    return admin_pb2.Settled(begin=place, windows=[window], life=9, processed=[told], **more)


def page(world: World) -> tuple[int, int, int]:
    """Delivered, processed, and processed in part, as stored."""
    found = DeliveryCounts(world.markers.counts.get(KEY)).windows.get((Filter.parse(None).hash, 0))
    return (0, 0, 0) if found is None else (found.delivered.updates, found.processed, found.partial)


async def test_what_a_replay_delivered_is_counted_in_the_write_of_its_datamarker(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.application()
    first = world.commit("a")
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
        (window,) = publisher.delivery_counter.report(admin_pb2.AuditRequest(), [flow_of(publisher)]).windows
        assert (window.delivered, window.processed) == (2, 3), "nor as the live log goes on"


async def test_a_replay_of_the_last_changes_stores_its_range(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    world.commit("a")
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


async def test_of_two_that_begin_at_one_moment_one_is_refused(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        one, other = await client(publisher), await client(publisher, "r2")
        answers = await asyncio.gather(one.begin(), other.begin(), return_exceptions=True)
        assert isinstance(answers[0], admin_pb2.ReplayReply)
        assert isinstance(answers[1], RefusedError)
        assert answers[1].code is Status.FAILED_PRECONDITION
        assert "replay r1 by maria@ops has the flow" in str(answers[1])
        assert (await other.begin(preview=True)).replay.replay == "r1"


async def test_who_takes_a_replay_up_puts_the_former_driver_out(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        one = await opened(world, publisher, s1, until=first)
        other = await client(publisher)
        reply = await other.begin(who="john@ops", mode=admin_pb2.LATEST)
        assert (reply.replay.who, reply.replay.mode, reply.replay.state) == ("john@ops", admin_pb2.LOG, "replaying")
        assert marker_from_message(reply.replay.until) == first
        for asked in (one.advances(first), one.renews(), one.tries_to_open(), one.finishes(first), one.cancels()):
            assert (await refused(asked)).code is Status.UNAUTHENTICATED
        await other.opens()
        await other.advances(first)
        assert world.markers.records[KEY].marker == first


async def test_what_a_former_task_says_is_refused(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        replay = await held(world, publisher, s1)
        assert (await refused(replay.advances(first))).code is Status.INVALID_ARGUMENT  # it names no epoch
        replay.epoch = 1
        assert (await refused(replay.finishes(first))).code is Status.FAILED_PRECONDITION  # nothing was opened
        former = (await replay.opens()).epoch
        newest = (await replay.opens()).epoch
        assert newest > former
        replay.epoch = former
        assert (await refused(replay.advances(first))).code is Status.ABORTED
        assert (await refused(replay.finishes(first))).code is Status.ABORTED
        assert world.markers.records[KEY].marker.order.offset == 0
        world.markers.records[KEY] = _raised(world)  # another publisher
        replay.epoch = newest
        assert (await refused(replay.advances(first))).code is Status.ABORTED


def _raised(world: World) -> Any:
    return replace(world.markers.records[KEY], epoch=world.markers.records[KEY].epoch + 1)


async def test_an_earlier_datamarker_is_not_stored(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(second)
        assert marker_from_message((await replay.advances(first)).flow.marker) == second
        assert (await refused(replay.finishes(first))).code is Status.INVALID_ARGUMENT


# --- when somebody is silent -------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_lease_that_runs_out_gives_the_flow_back(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(first)
        lease_runs_out(publisher)
        assign = await s1.accepts(await s1.hears("assign"))
        assert marker_from_message(assign.marker) == first
        assert assign.epoch > replay.epoch
        assert keys(s1, await s1.hears("batch")) == [b"b"]
        assert (await refused(replay.advances(first))).code is Status.FAILED_PRECONDITION
        assert (await refused(replay.renews())).code is Status.FAILED_PRECONDITION


async def test_who_renews_keeps_the_flow(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin(lease_s=3000)
        lease_runs_out(publisher)
        assert 2000 < (await replay.renews()).replay.lease_left_s <= 3000
        for _ in range(3):
            publisher.replays.look(publisher.clock.monotonic())
            await asyncio.sleep(0)
        assert stored(world) is not None


async def test_a_renewal_while_the_log_is_looked_at_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
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


async def test_a_flow_whose_log_is_gone_needs_a_replay_and_says_so(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
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
        assert (await refused(replay.advances(first))).code is Status.FAILED_PRECONDITION
        assert (await refused(replay.renews())).code is Status.FAILED_PRECONDITION
    async with world.publisher() as publisher:  # it is so after a restart too
        await s1.hears_later("hello")
        replay = await client(publisher)
        assert state(publisher) == "needs_replay"
        assert "wormholectl replay --resume r1" in str(publisher.replays.cause(flow_of(publisher)))
        assert (await replay.cancels(as_operator=True)).replay.state == "needs_replay"  # looked at again
        assert s1.heard_nothing("heartbeat")
        assert (await replay.begin()).replay.state == "held"
        assert marker_from_message((await replay.opens()).marker) == first  # it goes on where it was


async def test_another_replay_may_take_over_what_needs_one(world: World) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        one, other = await client(publisher), await client(publisher, "r2")
        await one.begin()
        world.source.purge()
        assert (await one.cancels()).replay.state == "needs_replay"
        assert (await other.begin()).replay.replay == "r2"
        assert (await refused(one.begin())).code is Status.FAILED_PRECONDITION
        assert not (await other.begin(preview=True)).reaches
        assert first.order == world.source.earliest().order


async def test_a_log_that_cannot_be_reached_is_asked_again_and_seen(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
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
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.advances(first)
        ticket, epoch = replay.ticket, replay.epoch
    async with world.publisher() as publisher:
        await s1.hears("hello")
        replay = await client(publisher)
        replay.ticket, replay.epoch = ticket, epoch
        assert (await replay.renews()).replay.lease_left_s > 29 * FAST
        assert (await refused(replay.advances(first))).code is Status.ABORTED  # nothing of this epoch is known here
        told = await replay.opens()
        assert told.epoch > epoch
        assert marker_from_message(told.marker) == first
        assert (await replay.finishes(first)).reaches
        await s1.hears_later("assign")


async def test_a_driver_that_never_comes_back_after_a_restart_loses_the_flow(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        await (await client(publisher)).begin()
    async with world.publisher() as publisher:
        await world.register(s1)
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        await eventually(lambda: publisher.replays.run_of(flow_of(publisher)), "its lease began")
        lease_runs_out(publisher)
        await taken(s1)


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


async def test_without_a_subscriber_there_is_only_a_cause(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin()
        assert (await replay.tries_to_open()).cause == "no subscriber is there"
        assert (
            str(publisher.replays.cause(flow_of(publisher)))
            == "held for replay r1 by maria@ops: no subscriber is there"
        )


# --- the end -----------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_log_that_no_longer_reaches_back_is_told_with_the_range(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
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


async def test_another_history_of_the_log_is_told_as_a_gap_without_a_range(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    first = world.commit("a")
    second = world.commit("b")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        world.source.restore(first)
        reply = await replay.finishes(second)
        assert (reply.purged.first_missing, reply.purged.last_missing) == ("", "")
        assert reply.purged.message
        assert reply.replay.state == "replaying"


# --- operators ---------------------------------------------------------------------------------------------------------  # noqa: E501


async def test_a_paused_flow_is_taken_and_opened_when_it_is_resumed(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        await world.register(s1)
        replay = await client(publisher)
        control = Control(publisher)
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
        assert (await refused(replay.advances(first))).code is Status.ABORTED
        assert "paused by maria@ops" in (await replay.tries_to_open()).cause
        await control.change(request("resume"))
        await replay.opens()
        await control.change(request("skip", update_id="mem:1:0"))
        assert (await refused(replay.advances(first))).code is Status.ABORTED
        assert (await replay.opens()).skip == ["mem:1:0"]
        await replay.advances(first)
        await eventually(lambda: not world.markers.records[KEY].control.skip, "it is behind the datamarker")


async def test_a_changed_filter_is_told_to_the_next_task(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        replay = await held(world, publisher, s1)
        assert "upsert" not in (await replay.opens()).filter
        before = flow_of(publisher).filter.hash
        world.application(where="op == 'upsert'")
        await eventually(lambda: flow_of(publisher).filter.hash != before, "configured")
        assert (await refused(replay.advances(first))).code is Status.ABORTED
        assert "upsert" in (await replay.opens()).filter
        await replay.advances(first)
        assert world.markers.records[KEY].filter_hash == flow_of(publisher).filter.hash


async def test_operators_do_not_move_what_is_replayed(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        control = Control(publisher)
        await replay.begin()
        for asked in (request("set_marker", place="latest"), request("forget")):
            error = await refused(control.change(asked))
            assert error.code is Status.FAILED_PRECONDITION
            assert "wormholectl replay --cancel r1" in str(error)
        assert (await refused(control.change(request("accept_loss")))).code is Status.FAILED_PRECONDITION
        assert (await refused(control.change(request("resume")))).code is Status.FAILED_PRECONDITION


@pytest.mark.parametrize("asked", [request("set_marker", place="earliest"), request("forget")])
async def test_a_flow_that_needs_a_replay_may_be_moved_instead(world: World, asked: admin_pb2.ChangeRequest) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin()
        world.source.purge()
        await replay.cancels()
        await Control(publisher).change(asked)
        assert stored(world) is None
        assert state(publisher) == "unassigned"
        assert world.markers.records[KEY].marker == world.source.earliest()


async def test_who_accepts_the_loss_of_what_needs_a_replay_hears_what_is_missing(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin()
        world.source.purge()
        await replay.cancels()
        await world.register(s1)
        reply = await Control(publisher).change(request("accept_loss"))
        assert stored(world) is None
        assert reply.before.state == "needs_replay"
        await taken(s1)
        assert (await s1.hears("data_loss")).data_loss.first_missing == "1"


async def test_a_flow_at_which_a_handler_gave_up_is_tried_again(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        failed = push_pb2.Failed(
            flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.HANDLER, update_id="mem:1:0", message="no"
        )
        await s1.says(failed=failed)
        replay = await client(publisher)
        await eventually(lambda: flow_of(publisher).halted_at, "stands")
        await replay.begin()
        assert (await replay.opens()).subscriber == "s1"


async def test_an_application_that_is_removed_and_comes_back_is_replayed_still(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await client(publisher)
        await replay.begin()
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await eventually(lambda: KEY not in publisher.assigner.flows, "forgotten")
        assert (await refused(replay.renews())).code is Status.NOT_FOUND
        publisher.replays.look(0.0)
        world.application()
        await eventually(lambda: KEY in publisher.assigner.flows, "served again")
        assert state(publisher) == "replaying"
        assert (await replay.renews()).replay.replay == "r1"


async def test_what_another_publisher_gave_to_a_newer_task_is_left_alone(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1, mode=admin_pb2.LATEST)
        record = world.markers.records[KEY]
        assert record.control.replay is not None
        elsewhere = FlowControl(replay=replace(record.control.replay, attempts=7))
        world.markers.records[KEY] = replace(record, control=elsewhere)
        assert (await refused(replay.advances(progress=b"old"))).code is Status.ABORTED
        assert world.markers.records[KEY].control == elsewhere
        assert (await refused(replay.finishes(first))).code is Status.ABORTED


async def test_a_store_that_fails_leaves_everything_as_it_was(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.application()
    first = world.commit("a")
    async with world.publisher() as publisher:
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


async def test_a_datamarker_that_is_missing_is_told_and_nothing_else_is_taken_for_that(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
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


async def test_a_flow_that_is_held_at_missing_log_is_replayed_over_it(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    world.commit("a")
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


async def test_the_live_flow_goes_first_to_whom_a_task_may_still_push(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    world.commit("a")
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
