"""Changes by operators: each is shown, durable, kept in the history, and takes effect; what cannot be is refused
with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any

import grpc
import pytest

from publisher.flows import housekeeping, marker_writer, records
from publisher.operate.control import Control
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, finished, history, refused, request, served
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.coordination.port import HistoryEntry
from wormhole.model.errors import CoordinationLost, MarkerStoreError, PositionError, PositionPurged, UsageError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LastAck
from wormhole.ports.marker_store import MOST_SKIPPED, FlowControl, FlowKey, StoredFlow, start_key
from wormhole.wire.markers import ack_from_message, marker_from_message
from wormhole.wire.v1 import admin_pb2, push_pb2


async def test_a_paused_flow_is_finished_and_stays_paused_after_a_restart(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    marker = world.commit("a")
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.processed(await s1.hears("batch"))
        control = await served(publisher)
        preview = await control.change(request("pause", preview=True))
        assert preview.before.state in ("live", "catching_up")
        assert preview.after.state == "paused"
        assert not world.markers.records[KEY].control.paused
        reply = await control.change(request("pause"))
        assert reply.before.paused == ""
        assert reply.after.paused.startswith("maria@ops at 20")
        assert reply.after.state == "releasing"
        offered = await s1.hears_later("datamarker")
        await s1.acks(offered)
        await finished(s1, assign)
        await eventually(lambda: world.markers.records[KEY].marker == marker, "acknowledged and stored")
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.cause.startswith("paused by maria@ops"), "told")
        assert (await refused(control, request("pause"))).status is grpc.StatusCode.FAILED_PRECONDITION
    assert world.markers.records[KEY].control.paused == reply.after.paused
    world.commit("b")
    async with world.publisher() as publisher:
        control = await served(publisher)
        await s1.hears_later("hello")
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.cause.startswith("paused by maria@ops"), "paused still")
        assert s1.heard_nothing("heartbeat")
        assert (await control.change(request("resume"))).after.paused == ""
        assert keys(s1, await _next_batch(s1)) == [b"b"]
        assert (await refused(control, request("resume"))).status is grpc.StatusCode.FAILED_PRECONDITION
    assert history(world) == [("maria@ops", "pause", FLOW), ("maria@ops", "resume", FLOW)]


@pytest.mark.usefixtures("first", "assign")
@pytest.mark.parametrize("what", ["pause", "skip", "retry_dead_letters"])
async def test_a_change_reaches_a_flow_whose_application_was_gone_for_a_moment(
    world: World,
    s1: ScriptedSubscriber,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    publisher: Publisher,
    control: Control,
) -> None:
    """Between the look and the answer its configuration was removed and brought back, and the flow was given to s1
    again."""
    former = publisher.assigner.flows[KEY]
    look = control._planned

    async def looked(asked: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> Any:
        found = await look(asked, flow, who)
        present = publisher.assigner.flows[KEY] = copy(flow)
        stream = publisher.assigner.stream_of(flow)
        assert stream is not None
        for number, (push, _) in tuple(stream._outgoing.flows.items()):
            stream._outgoing.close(number)
            stream._outgoing.open(push, present)
        return found

    async def retry(flow: PublisherFlow, key: str, preview: bool = False, anyone: bool = False) -> str:
        if not preview:
            publisher.assigner.again(flow, "1 parked update is delivered again")
        return "1 parked update"

    monkeypatch.setattr(control, "_planned", looked)
    monkeypatch.setattr(publisher.dead_letters, "retry", retry)
    await control.change(request(what, update_id="0-1:99:0") if what == "skip" else request(what))
    await s1.hears_later("revoke")
    present = publisher.assigner.flows[KEY]
    assert present is not former
    assert present.control == former.control


async def _next_batch(subscriber: ScriptedSubscriber) -> push_pb2.PublisherFrame:
    await subscriber.accepts(await subscriber.hears_later("assign"))
    return await subscriber.hears_later("batch")


@pytest.mark.usefixtures("first")
async def test_the_log_behind_a_paused_flow_is_kept(world: World, publisher: Publisher, control: Control) -> None:
    await control.change(request("pause"))
    await publisher.housekeeping.release()
    assert world.source.earliest().order.offset == 0


async def halted(s1: ScriptedSubscriber, flow: PublisherFlow, assign: push_pb2.Assign) -> str:
    """The handler gives up the first update. Returns its id."""
    update_id = s1.updates(await s1.hears("batch"))[0].id
    failed = push_pb2.Failed(
        flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.HANDLER, update_id=update_id, message="boom"
    )
    await s1.says(failed=failed)
    await eventually(lambda: flow.holding.halted_at == update_id, "the flow is halted")
    return update_id


@pytest.mark.usefixtures("first")
async def test_a_flow_whose_handler_gave_up_goes_on_without_a_restart(
    world: World, s1: ScriptedSubscriber, publisher: Publisher, assign: push_pb2.Assign
) -> None:
    flow = publisher.assigner.flows[KEY]
    update_id = await halted(s1, flow, assign)
    control = await served(publisher)
    preview = await control.change(request("resume", preview=True))
    assert preview.before.halted_at == update_id
    assert update_id in preview.notes[0]
    await control.change(request("resume"))
    again = await s1.hears_later("assign")
    assert again.assign.epoch > assign.epoch
    assert flow.holding.halted_at == ""


# --- markers


async def test_a_marker_is_set_back_and_the_rest_is_delivered_again(
    world: World, s1: ScriptedSubscriber, first: Datamarker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_RELEASE_EVERY_S", 1e9)  # the log goes on holding what was delivered
    world.commit("b")
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.processed(await s1.hears("batch"))
        offered = await s1.hears("datamarker")
        await s1.acks(offered)
        last = marker_from_message(offered.datamarker.marker)
        await eventually(lambda: world.markers.records[KEY].marker == last, "stored")
        control = await served(publisher)
        back = request("set_marker", place=str(first.order))
        back.preview = True
        preview = await control.change(back)
        assert marker_from_message(preview.after.marker) == first
        assert preview.after.epoch == preview.before.epoch + 1
        assert "1 transactions of its shard" in preview.notes[0]
        assert "delivered again" in preview.notes[0]
        assert world.markers.records[KEY].marker == last
        back.preview = False
        reply = await control.change(back)
        acked = LastAck(0, last.order)
        hashed = publisher.assigner.flows[KEY].filter.hash
        assert world.markers.records[KEY] == StoredFlow(first, 2, "earliest", hashed, FlowControl(), True, 2, acked)
        assert marker_from_message(reply.after.marker) == first
        await finished(s1, assign)
        again = await s1.hears_later("assign")
        assert (again.assign.epoch, again.assign.replayed) == (3, True)
        assert ack_from_message(again.assign.last_ack) == acked
        await s1.accepts(again)
        assert keys(s1, await s1.hears_later("batch")) == [b"b"]
    [entry] = world.coordination.history
    assert (entry.what, entry.before, entry.after) == ("set-marker", str(last), str(first))


@pytest.mark.usefixtures("first")
async def test_a_rewind_to_the_stored_datamarker_is_not_undone_by_the_acknowledged_one(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_writer, "_EVERY_S", 1e9)
    async with world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        offered = await s1.hears_later("datamarker")
        await s1.acks(offered)
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.marker == marker_from_message(offered.datamarker.marker), "the ack")
        start = world.markers.records[KEY].marker
        assert start.order < flow.delivery.marker.order
        await (await served(publisher)).change(request("set_marker", place="earliest"))
        assert (world.markers.records[KEY].marker, world.markers.records[KEY].rewound) == (start, True)
        await finished(s1, assign)
        assert (await s1.hears_later("assign")).assign.rewound


@pytest.mark.usefixtures("first", "assign")
async def test_an_ack_of_before_the_rewind_does_not_undo_it(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await s1.processed(await s1.hears("batch"))
    offered = await s1.hears("datamarker")
    control = await served(publisher)
    start = world.markers.records[KEY].marker
    await control.change(request("set_marker", place="earliest"))
    await s1.acks(offered)
    await s1.hears_later("revoke")
    await publisher.records.markers.flush()
    assert world.markers.records[KEY].marker == start
    assert publisher.assigner.flows[KEY].delivery.marker == start


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("place", ["earliest", "latest"])
async def test_a_move_that_the_store_made_before_it_failed_takes_effect(
    world: World,
    s1: ScriptedSubscriber,
    monkeypatch: pytest.MonkeyPatch,
    assign: push_pb2.Assign,
    publisher: Publisher,
    control: Control,
    place: str,
) -> None:
    """In an epoch without its number the application would go on from its own datamarker, and adopt the move later."""
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears("datamarker"))
    flow, store = publisher.assigner.flows[KEY], publisher.records.store
    await eventually(lambda: bool(world.markers.records[KEY].filter_hash), "stored")
    world.commit("b")
    rewind, load = store.rewind, store.load

    def cut(*arguments: Any, **more: Any) -> int:
        rewind(*arguments, **more)
        raise CoordinationLost("no contact")

    def away(*_: object) -> Mapping[FlowKey, StoredFlow]:
        monkeypatch.setattr(store, "load", load)
        raise CoordinationLost("no contact")

    monkeypatch.setattr(records, "_RETRY_S", 0.01)
    monkeypatch.setattr(store, "rewind", cut)
    monkeypatch.setattr(store, "load", away)
    with pytest.raises(CoordinationLost):
        await control.change(request("set_marker", place=place))
    moved = world.markers.records[KEY]
    await finished(s1, assign)
    again = (await s1.hears_later("assign")).assign
    assert (again.move, moved.move) == (2, 2)
    assert again.epoch > moved.epoch
    assert marker_from_message(again.marker) == moved.marker
    assert not flow.delivery.moving


@pytest.mark.usefixtures("first", "assign")
async def test_a_move_that_the_store_did_not_make_leaves_the_flow_with_its_subscriber(
    world: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch, publisher: Publisher, control: Control
) -> None:
    flow = publisher.assigner.flows[KEY]
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears("datamarker"))
    await eventually(lambda: bool(world.markers.records[KEY].filter_hash), "stored")
    before = world.markers.records[KEY]

    def away(*_: object, **more: object) -> int:
        raise CoordinationLost("no contact")

    monkeypatch.setattr(publisher.records.store, "rewind", away)
    with pytest.raises(CoordinationLost):
        await control.change(request("set_marker", place="earliest"))
    assert flow.delivery.moving
    await eventually(lambda: not flow.delivery.moving, "its record was read")
    assert world.markers.records[KEY] == before
    world.commit("b")
    assert keys(s1, await s1.hears_later("batch")) == [b"b"]


@pytest.mark.usefixtures("first")
async def test_forwards_says_what_is_jumped_over_and_works_with_nobody_there(world: World) -> None:
    last = world.commit("b")
    async with world.publisher() as publisher:
        control = await served(publisher)
        start = world.markers.records[KEY].marker
        await eventually(lambda: publisher.log.watch.lag(KEY[1], start, 0.0).bytes == last.order.offset, "measured")
        reply = await control.change(request("set_marker", place="latest"))
        assert f"{last.order.offset} bytes of log" in reply.notes[0]
        assert "never delivered" in reply.notes[0]
        assert world.markers.records[KEY].marker == last


async def test_a_time_means_the_last_place_before_it(world: World) -> None:
    world.application()
    clock = [1_000_000_000_000_000]
    world.source._now_us = lambda: clock[0]
    first = world.commit("a")
    clock[0] += 60_000_000
    world.commit("b")
    async with world.publisher() as publisher:
        control = await served(publisher)
        await control.change(request("set_marker", at_s=1_000_000_030.0))
        assert world.markers.records[KEY].marker == first
        for never in (0.0, -1.0, float("nan"), float("inf"), 1e12):
            with pytest.raises(PositionError, match="no time in the past"):
                await control.change(request("set_marker", at_s=never))


async def test_a_place_before_the_log_says_what_there_is_and_offers_a_replay(world: World) -> None:
    world.application(start="latest")
    clock = [1_000_000_000_000_000]
    world.source._now_us = lambda: clock[0]
    first = world.commit("a")
    last = world.commit("b")
    world.source.purge()
    async with world.publisher() as publisher:
        control = await served_later(world, publisher)
        before = world.markers.records[KEY]
        for asked in (request("set_marker", place="seq:0"), request("set_marker", at_s=900_000_000.0)):
            with pytest.raises(PositionPurged) as caught:
                await control.change(asked)
            assert f"the log begins at {last}, about 2001-09-09 01:46:40 UTC" in caught.value.message
            assert "mass replay" in str(caught.value.hint)
        assert first.order < last.order
        assert world.markers.records[KEY] == before
        assert not world.coordination.history


async def served_later(world: World, publisher: Publisher) -> Control:
    """The shard shows itself first."""
    await publisher.applications.known.wait()
    await eventually(lambda: publisher.log.fleet.lead is not None, "reading")
    return await served(publisher)


@pytest.mark.usefixtures("first")
async def test_what_is_no_place_is_refused(world: World, control: Control) -> None:
    with pytest.raises(PositionError):
        await control.change(request("set_marker", place="yesterday"))
    assert (await refused(control, request("set_marker"))).status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("what", ["pause", "set_marker", "forget"])
async def test_a_flow_that_is_not_there_is_named_with_its_neighbours(world: World, what: str, control: Control) -> None:
    error = await refused(control, request(what, "app/log.x"))
    assert error.status is grpc.StatusCode.NOT_FOUND
    assert FLOW in str(error.hint)
    error = await refused(control, request(what, start_key("app", "log")[0] + "/log.%start"))
    assert error.status is grpc.StatusCode.NOT_FOUND
    assert (await refused(control, request(what, "app"))).status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.usefixtures("first")
async def test_a_record_that_somebody_deleted_is_not_found(
    world: World, publisher: Publisher, control: Control
) -> None:
    del world.markers.records[KEY]
    for asked in (request("pause"), request("set_marker", place="latest")):
        assert (await refused(control, asked)).status is grpc.StatusCode.NOT_FOUND
    assert not publisher.assigner.flows[KEY].control.paused
    assert not publisher.assigner.flows[KEY].delivery.moving


# --- skipping


@pytest.mark.usefixtures("first")
async def test_an_update_is_skipped_until_the_marker_has_passed_it(
    world: World, s1: ScriptedSubscriber, publisher: Publisher, assign: push_pb2.Assign
) -> None:
    flow = publisher.assigner.flows[KEY]
    update_id = await halted(s1, flow, assign)
    control = await served(publisher)
    reply = await control.change(request("skip", update_id=update_id))
    assert list(reply.after.skip) == [update_id]
    assert "goes on behind it" in reply.notes[1]
    assert world.markers.records[KEY].control == FlowControl("", (update_id,))
    assert (await refused(control, request("skip", update_id=update_id))).status is grpc.StatusCode.FAILED_PRECONDITION
    await s1.accepts(await s1.hears_later("assign"))
    await s1.processed(await s1.hears_later("batch"))
    await s1.acks(await s1.hears_later("datamarker"))
    await eventually(lambda: world.markers.records[KEY].control == FlowControl(), "it has passed it")
    await eventually(lambda: flow.control == FlowControl(), "and the publisher knows")
    assert (await refused(control, request("skip", update_id=update_id))).status is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.usefixtures("first")
async def test_ids_are_checked_and_their_number_is_bounded(world: World, control: Control) -> None:
    with pytest.raises(UsageError, match="no id of an update"):
        await control.change(request("skip", update_id="the one before last"))
    for number in range(MOST_SKIPPED):
        await control.change(request("skip", update_id=f"mem:{number + 5}:0"))
    error = await refused(control, request("skip", update_id="mem:4000:0"))
    assert "the most" in error.message


# --- losses


@pytest.mark.usefixtures("first", "assign")
async def test_a_loss_that_the_application_halts_at_can_be_accepted(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await s1.hears("batch")
    control = await served(publisher)
    assert "no loss" in (await refused(control, request("accept_loss"))).message
    world.source.skip()
    world.commit("b")
    loss = (await s1.hears_later("data_loss")).data_loss
    assert "being asked" in (await refused(control, request("accept_loss"))).message
    await s1.says(loss_decision=push_pb2.LossDecision(flow=loss.flow, epoch=loss.epoch, proceed=False))
    flow = publisher.assigner.flows[KEY]
    await eventually(lambda: flow.stage is Stage.DECLINED, "halted")
    flow.stage = Stage.RELEASING
    assert "gives it back just now" in (await refused(control, request("accept_loss"))).message
    flow.stage = Stage.DECLINED
    preview = await control.change(request("accept_loss", preview=True))
    assert preview.before.loss_pending
    assert not preview.after.loss_pending
    assert preview.notes[1] == f"`wormholectl repair {flow.name}` sends the rows that it lacks then"
    await control.change(request("accept_loss"))
    assert keys(s1, await s1.hears_later("batch")) == [b"b"]
    assert (await refused(control, request("accept_loss"))).status is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.usefixtures("first", "assign")
async def test_what_is_missing_is_named_once(s1: ScriptedSubscriber, publisher: Publisher) -> None:
    await s1.hears("batch")
    control = await served(publisher)
    flow = publisher.assigner.flows[KEY]
    for begin, end, message, note in (
        ("7", "9", "gone", "gone (7 to 9)"),
        ("7", "7", "gone", "gone (7)"),
        ("", "9", "gone", "gone (? to 9)"),
        ("", "", "gone", "gone (? to ?)"),
        ("a:7-9", "a:7-9", "the server has not executed a:7-9", "the server has not executed a:7-9"),
        ("7", "9", "the log no longer holds 7 to 9", "the log no longer holds 7 to 9"),
    ):
        gap = LogGap(LossKind.PURGED, begin, end, message)
        flow.loss.open, flow.stage = (gap, flow.delivery.marker), Stage.DECLINED
        preview = await control.change(request("accept_loss", preview=True))
        assert preview.notes[0] == f"never delivered: {note}"


# --- forgetting


@pytest.mark.usefixtures("first")
async def test_a_flow_begins_anew_where_the_start_says_once_nobody_subscribes(
    world: World, s1: ScriptedSubscriber, publisher: Publisher, assign: push_pb2.Assign
) -> None:
    world.application("other")  # still needs the log from its beginning
    await eventually(lambda: ("other", "log.t") in publisher.assigner.flows, "registered")
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears("datamarker"))
    control = await served(publisher)
    error = await refused(control, request("forget"))
    assert (error.status, "s1" in error.message) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    await control.change(request("pause"))
    await finished(s1, assign)
    await s1.says(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING, message="bye"))
    await world.leaves(s1)
    await eventually(lambda: not publisher.assigner.live_subscribers("app"), "gone")
    epoch = world.markers.records[KEY].epoch
    await publisher.records.markers.flush()
    await publisher.housekeeping.release()
    await control.change(request("forget"))
    record = world.markers.records[KEY]
    assert (record.marker.order.offset, record.epoch, record.control) == (0, epoch + 1, FlowControl())
    await world.register(s1)
    assert keys(s1, await _next_batch(s1)) == [b"a"]


async def test_a_flow_without_application_can_only_be_forgotten(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    await world.register(s1)
    world.application("other")
    world.commit("a")
    async with world.publisher() as publisher:
        control = await served(publisher)
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await eventually(lambda: KEY not in publisher.assigner.flows, "configured no longer")
        assert (await refused(control, request("pause"))).status is grpc.StatusCode.FAILED_PRECONDITION
        assert "subscribers of app are there: s1" in (await refused(control, request("forget"))).message
        await world.leaves(s1)
        preview = await control.change(request("forget", preview=True))
        assert (preview.before.state, preview.after.state) == ("unserved", "forgotten")
        assert KEY in world.markers.records
        await control.change(request("forget"))
        assert {key for key in world.markers.records if key[0] == "app"} == set()
        assert ("other", "log.t") in world.markers.records
        assert (await refused(control, request("forget"))).status is grpc.StatusCode.NOT_FOUND


# --- around it


@pytest.mark.usefixtures("first")
async def test_a_store_that_fails_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher, control: Control
) -> None:

    def full(*arguments: object) -> None:
        raise MarkerStoreError("the disk is full", hint="make space")

    monkeypatch.setattr(publisher.records.store, "set_control", full)
    with pytest.raises(MarkerStoreError):
        await control.change(request("pause"))
    assert publisher.assigner.flows[KEY].control == FlowControl()
    assert not world.coordination.history


@pytest.mark.usefixtures("first")
async def test_a_history_that_cannot_be_written_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher, control: Control
) -> None:

    async def away(entry: HistoryEntry) -> None:
        raise CoordinationLost("no contact")

    monkeypatch.setattr(publisher.coordinator, "record", away)
    reply = await control.change(request("pause"))
    assert "the history misses it: no contact" in reply.notes[-1]
    assert world.markers.records[KEY].control.paused


@pytest.mark.usefixtures("first")
async def test_names_are_kept_printable_and_short(world: World, control: Control) -> None:
    asked = request("pause")
    asked.who = "ma\x1b[31mria\n" + "x" * 1000
    await control.change(asked, certificate="ops")
    [entry] = world.coordination.history
    assert entry.who.startswith("ma[31mriax")
    assert entry.who.endswith("x (certificate ops)")
    assert len(entry.who) < 130
    await control.change(request("resume"))


async def test_before_the_applications_are_known_it_says_so(world: World, publisher: Publisher) -> None:
    publisher.applications.known.clear()
    assert (await refused(operated(publisher).control, request("pause"))).status is grpc.StatusCode.UNAVAILABLE


@pytest.mark.usefixtures("first")
async def test_an_unknown_change_is_refused(world: World, control: Control) -> None:
    error = await refused(control, admin_pb2.ChangeRequest(flow=FLOW))
    assert error.status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.usefixtures("first")
async def test_changes_wait_for_each_other(world: World, control: Control) -> None:
    ids = [f"mem:{number}:0" for number in range(10, 20)]
    await asyncio.gather(*(control.change(request("skip", update_id=one)) for one in ids))
    assert world.markers.records[KEY].control.skip == tuple(ids)


@pytest.mark.usefixtures("first")
async def test_a_publisher_that_lost_its_log_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher, control: Control
) -> None:
    """What it wrote would stand in the store, and the one that has the log would not know."""
    monkeypatch.setattr(publisher.ownership, "ours", lambda: False)
    error = await refused(control, request("pause"))
    assert "taken this log over" in error.message
    assert not world.markers.records[KEY].control.paused
