"""The publisher as its subscribers and stores see it; memory parts around it, gRPC for real."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.operate.metrics import collect
from publisher.push import contest
from publisher.push.stages import PublisherFlowState
from tests.support.certificates import Authority
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from tests.unit.publisher.conftest import World
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import SubscriberInfo
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError, DecodeError, SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.marker_store import MarkerWrite
from wormhole.push import session
from wormhole.wire.markers import marker_from_message, marker_to_message
from wormhole.wire.v1 import push_pb2

KEY = ("app", "log.t")
SERVED = {PublisherFlowState.LIVE, PublisherFlowState.CATCHING_UP}


async def taken(subscriber: ScriptedSubscriber) -> push_pb2.Assign:
    """The subscriber answers hello and takes the one flow that it is given."""
    await subscriber.hears("hello")
    return await subscriber.accepts(await subscriber.hears("assign"))


def keys(subscriber: ScriptedSubscriber, frame: push_pb2.PublisherFrame) -> list[object]:
    return [update.key[0] for update in subscriber.updates(frame)]


async def test_an_update_is_delivered_acknowledged_and_stored(world: World) -> None:
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        assert (assign.epoch, assign.shard, assign.replayed) == (1, "log.t", False)
        batch = await s1.hears("batch")
        assert keys(s1, batch) == [b"a"]
        await s1.processed(batch)
        offered = await s1.hears("datamarker")
        assert marker_from_message(offered.datamarker.marker) == marker
        assert world.markers.records[KEY].marker != marker  # offered is not acknowledged
        await s1.acks(offered)
        await eventually(lambda: world.markers.records[KEY].marker == marker, "stored")
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.durable == marker, "told")
        await eventually(lambda: flow.state(publisher.lead_flows()) is PublisherFlowState.LIVE, "at the lead")


async def test_a_log_whose_end_cannot_be_told_is_asked_again_whatever_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [SourceUnavailable("away"), DecodeError("nonsense"), UnsupportedLog("no binlog"), UsageError("denied")]
    found = world.source.latest
    seen: list[str] = []

    def latest() -> Datamarker:
        seen.append(publisher.fleet.trouble)
        if reasons:
            raise reasons.pop(0)
        return found()

    monkeypatch.setattr(world.source, "latest", latest)
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await eventually(lambda: not reasons, "each was met")
        world.application()
        await world.register(s1)
        await taken(s1)
        assert keys(s1, await s1.hears("batch")) == [b"a"]
    assert [trouble.rpartition(": ")[2] for trouble in seen[:5]] == ["", "away", "nonsense", "no binlog", "denied"]


async def test_progress_alone_is_never_stored(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await world.register(s1)
            assign = await taken(s1)
            batch = await s1.hears("batch")
            await s1.processed(batch)
            await s1.hears("datamarker")
            await s1.releases(assign)
        assert world.markers.records[KEY].marker.order.offset == 0
        async with world.publisher():
            assert (await taken(s1)).replayed
            again = await s1.hears("batch")
            assert keys(s1, again) == [b"a"]
            assert again.batch.replayed


async def test_a_graceful_stop_stores_what_is_acknowledged_while_it_waits(world: World) -> None:
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await world.register(s1)
            assign = await taken(s1)
            await s1.processed(await s1.hears("batch"))
            offered = await s1.hears("datamarker")
            closing = asyncio.create_task(publisher.assigner.close(5.0))
            revoke = await s1.hears("revoke")
            assert revoke.revoke.cause == "the publisher stops"
            await s1.acks(offered)
            await s1.releases(assign)
            await closing
        assert world.markers.records[KEY].marker == marker


async def test_a_graceful_stop_offers_what_was_sent_since_the_last_datamarker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next start would repeat it, although it was processed."""
    monkeypatch.setattr(session, "MARKER_EVERY_S", 1.0 * FAST)
    world.settings["stop_timeout"] = 30.0
    world.application()
    world.commit("a")
    stop = asyncio.Event()

    async def serve() -> None:
        async with world.publisher():
            await stop.wait()

    async with scripted_subscriber("app", "s1") as s1:
        serving = asyncio.create_task(serve())
        await world.register(s1)
        assign = await taken(s1)
        await s1.processed(await s1.hears("batch"))
        await s1.acks(await s1.hears("datamarker"))
        last = world.commit("b")
        await s1.processed(await s1.hears("batch"))
        stop.set()  # long before the next one is due
        offered = await s1.hears("datamarker")
        assert marker_from_message(offered.datamarker.marker) == last
        await s1.hears("revoke")
        await s1.acks(offered)
        await s1.releases(assign)
        await serving
        assert world.markers.records[KEY].marker == last


async def test_a_shard_moves_by_revoke_release_epoch_assign(world: World) -> None:
    world.application(pin={"log.t": "s1"})
    world.commit("a")
    async with (
        scripted_subscriber("app", "s1") as s1,
        scripted_subscriber("app", "s2") as s2,
        world.publisher(),
    ):
        await world.register(s1)
        first = await taken(s1)
        await s1.processed(await s1.hears("batch"))
        offered = await s1.hears("datamarker")
        await world.register(s2)
        await s2.hears("hello")
        world.application(pin={"log.t": "s2"})
        revoke = await s1.hears("revoke")
        assert revoke.revoke == push_pb2.Revoke(flow=first.flow, epoch=1, cause="moves to s2")
        assert s2.heard_nothing(), "assigned before it was released"
        assert world.markers.records[KEY].epoch == 1, "the epoch was raised while a handler may run"
        await s1.acks(offered)
        await s1.releases(first)
        second = (await s2.hears("assign")).assign
        assert second.epoch == 2
        assert world.markers.records[KEY].epoch == 2
        assert second.marker == offered.datamarker.marker
        # What was acknowledged in the old epoch is durable before the new one begins.
        assert marker_to_message(world.markers.records[KEY].marker) == second.marker


async def test_a_subscriber_that_never_releases_is_hung_up_on(world: World) -> None:
    world.settings |= {"grace_period": 6.0, "handler_timeout": 6.0}
    world.application(pin={"log.t": "s1"})
    world.commit("a")
    async with (
        scripted_subscriber("app", "s1") as s1,
        scripted_subscriber("app", "s2") as s2,
        world.publisher() as publisher,
    ):
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        await world.register(s2)
        await s2.hears("hello")
        world.application(pin={"log.t": "s2"})
        await s1.hears_later("revoke")
        assign = await s2.hears("assign")
        assert assign.assign.epoch == 2
        await s2.accepts(assign)
        assert keys(s2, await s2.hears("batch")) == [b"a"]
        # It is dialled again, holds nothing, and no forgotten flow of it slows a caravan down.
        await s1.hears("hello")
        travelling = [flow for caravan in publisher.fleet.caravans.values() for flow in caravan.flows]
        assert travelling == [publisher.assigner.flows[KEY].caravan_flow]


async def test_a_restarted_subscriber_gets_its_shard_in_a_new_epoch(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        async with scripted_subscriber("app", "s1") as again:
            await world.leaves(s1)
            await world.register(again, started=2.0)
            assign = await taken(again)
            assert assign.epoch == 2
            assert keys(again, await again.hears("batch")) == [b"a"]
            travelling = [flow for caravan in publisher.fleet.caravans.values() for flow in caravan.flows]
            assert travelling == [publisher.assigner.flows[KEY].caravan_flow]


async def test_a_broken_stream_goes_on_in_a_new_epoch(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        s1.hang_up()
        await eventually(lambda: s1.connections == 2, "dialled again")
        assign = await taken(s1)
        assert (assign.epoch, assign.replayed) == (2, True)
        assert keys(s1, await s1.hears("batch")) == [b"a"]


async def test_nothing_is_assigned_without_contact(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        publisher.coordinator.suspend()  # type: ignore[attr-defined]
        # The stream that is there goes on ...
        world.commit("b")
        assert keys(s1, await s1.hears_later("batch")) == [b"b"]
        # ... and what needs agreement waits.
        await s1.says(failed=push_pb2.Failed(flow=assign.flow, epoch=1, reason=push_pb2.Failed.RESEND))
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.caravan_flow is None, "given up")
        for _ in range(3):  # each begins when the one before has ended
            publisher.assigner.changed()
            await eventually(lambda: not publisher.assigner._changed.is_set(), "decided")
        assert world.markers.records[KEY].epoch == 1
        publisher.coordinator.restore()  # type: ignore[attr-defined]
        publisher.assigner.changed()
        assert (await s1.hears_later("assign")).assign.epoch == 2


async def test_a_newer_epoch_in_the_store_takes_the_flow_away(world: World) -> None:
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.processed(await s1.hears("batch"))
        offered = await s1.hears("datamarker")
        publisher.store.raise_epoch(KEY)  # another publisher takes it
        await s1.acks(offered)
        revoke = await s1.hears("revoke")
        assert "was refused by the marker store" in revoke.revoke.cause
        assert world.markers.records[KEY].marker != marker


# --- where flows begin


async def test_a_shard_born_later_begins_at_its_first_update(world: World) -> None:
    world.application(start="latest")
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await taken(s1)
        world.commit("n", table="new")
        assign = await s1.hears_later("assign")
        assert assign.assign.shard == "log.new"
        await s1.accepts(assign)
        batch = await s1.hears_later("batch")
        assert keys(s1, batch) == [b"n"]


async def test_a_shard_born_while_no_publisher_ran_misses_nothing(world: World) -> None:
    world.application(start="latest")
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await world.register(s1)
            assign = await taken(s1)
            await s1.releases(assign)
        world.commit("n", table="new")
        async with world.publisher():
            await s1.hears("hello")
            for _ in range(2):
                await s1.accepts(await s1.hears_later("assign"))
            assert keys(s1, await s1.hears_later("batch")) == [b"n"]


async def test_a_marker_that_the_application_has_ahead_of_ours_is_taken_over(world: World) -> None:
    world.application()
    world.commit("a")
    have = world.commit("b")
    world.commit("c")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await s1.hears("hello")
        await s1.accepts(await s1.hears("assign"), have=have)
        assert keys(s1, await s1.hears("batch")) == [b"c"]
        await eventually(lambda: world.markers.records[KEY].marker == have, "stored")


async def test_a_marker_that_the_application_has_behind_ours_rewinds_in_a_new_epoch(world: World) -> None:
    world.application()
    have = world.commit("a")
    stored = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.store.store([MarkerWrite(KEY, 0, stored)])
        async with world.publisher():
            await world.register(s1)
            await s1.hears("hello")
            first = await s1.accepts(await s1.hears("assign"), have=have)
            assert marker_from_message(first.marker) == stored
            await s1.hears("revoke")
            assert world.markers.records[KEY].marker == have
            await s1.releases(first)
            second = await s1.accepts(await s1.hears("assign"), have=have)
            assert second.epoch > first.epoch + 1
            assert marker_from_message(second.marker) == have
            batch = await s1.hears("batch")
            assert keys(s1, batch) == [b"b"]
            assert batch.batch.replayed


# --- what goes wrong on one side only


async def test_a_handler_that_gave_up_stands_until_that_subscriber_restarts(world: World) -> None:
    world.application()
    world.commit("a")
    world.commit("x", table="other")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await s1.hears("hello")
        flows = {}
        for _ in range(2):
            assign = await s1.accepts(await s1.hears_later("assign"))
            flows[assign.shard] = assign
        failed = push_pb2.Failed(
            flow=flows["log.t"].flow,
            epoch=flows["log.t"].epoch,
            reason=push_pb2.Failed.HANDLER,
            update_id="mem:1:0",
            message="no such user",
        )
        await s1.says(failed=failed)
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.state(frozenset()) is PublisherFlowState.HELD, "stands")
        assert "no such user" in flow.cause
        world.commit("y", table="other")  # the others go on
        while b"y" not in keys(s1, await s1.hears_later("batch")):
            pass
        s1.hang_up()  # a broken stream is no restart
        await eventually(lambda: s1.connections == 2, "dialled again")
        await s1.hears("hello")
        assert (await s1.hears("assign")).assign.shard == "log.other"
        assert flow.state(frozenset()) is PublisherFlowState.HELD
        async with scripted_subscriber("app", "s1") as again:
            await world.leaves(s1)
            await world.register(again, started=2.0)
            await again.hears("hello")
            shards = {(await again.hears_later("assign")).assign.shard for _ in range(2)}
            assert shards == {"log.t", "log.other"}


async def test_who_left_and_is_still_listed_is_served_again_when_it_comes_back(world: World) -> None:
    """The static form: the file lists the subscriber for ever, and nobody registers."""
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1, started=0.0)
        await taken(s1)
        await s1.says(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING, message="bye"))
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.state(frozenset()) is PublisherFlowState.UNASSIGNED, "let go")
        await s1.hears_later("hello")
        assert (await s1.hears("assign")).assign.epoch == 2


async def test_resend_begins_again_at_the_stored_marker(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        failed = push_pb2.Failed(flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.RESEND)
        await s1.says(failed=failed)
        again = await s1.accepts(await s1.hears_later("assign"))
        assert again.epoch == 2
        assert keys(s1, await s1.hears("batch")) == [b"a"]


async def test_a_breach_of_the_protocol_is_answered_and_the_stream_begins_anew(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        assign = await taken(s1)
        await s1.hears("batch")
        await s1.says(progress=push_pb2.Progress(flow=assign.flow, epoch=assign.epoch, number=99))
        goodbye = (await s1.hears_later("goodbye")).goodbye
        assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
        assert "batch 99 was never sent" in goodbye.message
        await eventually(lambda: s1.connections == 2, "dialled again")
        assert (await taken(s1)).epoch == 2


async def test_one_application_that_cannot_be_served_is_told_and_the_others_are(
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


async def test_subscribers_are_found_although_looking_for_them_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_subscriber_that_is_not_allowed_is_not_dialled(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.application(allow=["s1"])
    world.commit("a")
    with caplog.at_level(logging.ERROR):
        async with (
            scripted_subscriber("app", "s1") as s1,
            scripted_subscriber("app", "stranger") as stranger,
            world.publisher() as publisher,
        ):
            publisher.assigner.application(world.coordination.applications["app"])
            publisher.assigner.subscribers("app", [stranger.info()])
            await world.register(s1)
            await taken(s1)
            assert stranger.connections == 0
    assert "subscriber stranger is not in the allow list of app" in caplog.text


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


async def test_messages_fit_what_the_subscriber_takes(world: World) -> None:
    world.application()
    for number in range(40):
        world.commit(*(f"{number}-{i}" * 10 for i in range(20)), table="t")
    async with scripted_subscriber("app", "s1", max_frame=4096) as s1, world.publisher():
        await world.register(s1)
        await taken(s1)
        await s1.hears_later("datamarker")
        assert s1.largest <= 4096


async def test_what_is_sent_after_a_pause_of_the_log_is_not_late(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        flow = publisher.assigner.flows[KEY]
        await s1.processed(await s1.hears("batch"))
        await s1.acks(await s1.hears("datamarker"))
        await eventually(lambda: flow.durable.order.offset > 0, "acknowledged")
        flow.progressed(1.0)  # long ago
        world.commit("b")
        await s1.hears_later("batch")
        assert flow.progressed_at > 1.0


# --- epochs that a subscriber holds, and flows that were set back


async def refuses(
    subscriber: ScriptedSubscriber, assign: push_pb2.PublisherFrame, held: int, *, contested: bool = False
) -> None:
    """The subscriber holds the shard in another epoch."""
    flow = assign.assign
    failed = push_pb2.Failed(
        flow=flow.flow,
        epoch=flow.epoch,
        reason=push_pb2.Failed.STALE_EPOCH,
        held_epoch=held,
        held_by="the other one",
        contested=contested,
    )
    await subscriber.says(failed=failed)


async def test_a_store_that_was_set_back_goes_on_above_the_epoch_that_was_seen(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        publisher.assigner.flows[KEY].acknowledged = True
        await world.register(s1)
        await s1.hears("hello")
        await refuses(s1, await s1.hears("assign"), 40)
        again = await s1.accepts(await s1.hears("assign"))
        assert again.epoch == 41
        assert keys(s1, await s1.hears("batch")) == [b"a"]
        assert world.markers.records[KEY].epoch == 41
        assert publisher.assigner.flows[KEY].state(publisher.lead_flows()) in SERVED
    [said] = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert "s1 has seen epoch 40" in said
    assert "comes again" in said


async def test_a_flow_that_a_subscriber_knows_and_the_store_does_not_is_held(world: World) -> None:
    """The store is new: with ``start = "latest"`` what was committed in between would be lost without a word."""
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await s1.hears("hello")
        await refuses(s1, await s1.hears("assign"), 40)
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: bool(flow.control.missing), "held")
        assert "its datamarker is missing: s1 has had app/log.t in epoch 40" in str(flow.control.missing)
        assert "`wormholectl flows accept-loss app/log.t`" in str(flow.control.missing)
        assert world.markers.records[KEY].control.missing == flow.control.missing
        assert world.markers.records[KEY].epoch == 41
        assert publisher.state(flow, frozenset()) is PublisherFlowState.HELD
        await publisher.control(flow, lambda control: replace(control, missing=NO_PROBLEM))  # an operator accepts
        publisher.assigner.go_on(flow)
        assert (await s1.accepts(await s1.hears_later("assign"))).epoch == 42


async def test_a_flow_that_another_publisher_has_is_held_names_it_and_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "_PAUSE_S", 3600.0)
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        monkeypatch.setattr(publisher.ownership, "sole", lambda: False)
        await world.register(s1)
        first = await taken(s1)
        assert first.yields
        await s1.hears("batch")
        flow = publisher.assigner.flows[KEY]
        assign = push_pb2.PublisherFrame(assign=first)
        for epoch in (41, 42):  # it asks again and again
            before = flow.contest
            await refuses(s1, assign, 40, contested=True)
            await eventually(lambda before=before: flow.contest is not before, "refused")  # type: ignore[misc]
            assert publisher.state(flow, frozenset()) is PublisherFlowState.HELD
            assert "another publisher, the other one, serves this flow" in str(publisher.cause(flow))
            assert flow.contest is not None
            flow.refused(replace(flow.contest, until=0.0))  # the pause is over
            publisher.assigner.changed()
            assign = await s1.hears_later("assign")
            assert (assign.assign.epoch, assign.assign.yields) == (epoch, True)
        await s1.accepts(assign)
        assert keys(s1, await s1.hears("batch")) == [b"a"]
        assert publisher.state(flow, publisher.lead_flows()) in SERVED
        assert not publisher.cause(flow)


async def test_a_flow_is_not_called_live_while_nothing_may_be_sent(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        flow = publisher.assigner.flows[KEY]
        registration = publisher.ownership._registration
        assert registration is not None
        registration.held = False  # type: ignore[misc]
        assert publisher.state(flow, publisher.lead_flows()) is PublisherFlowState.HELD
        assert "another publisher took the log over" in str(publisher.cause(flow))
        await s1.hears("hello")  # the streams were hung up, and nothing is assigned
        await eventually(lambda: flow.subscriber is None or flow.caravan_flow is None, "let go")
        registration.held = True  # type: ignore[misc]
        publisher.assigner.changed()
        await s1.accepts(await s1.hears("assign"))


async def test_a_flow_that_was_set_back_is_delivered_again_whatever_the_application_kept(world: World) -> None:
    world.application()
    first = world.commit("a")
    kept = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.store.store([MarkerWrite(KEY, 0, kept)])
            publisher.store.rewind(KEY, first)
        for _ in range(2):  # also after a restart, while nothing was acknowledged
            async with world.publisher():
                await world.register(s1)
                await s1.hears("hello")
                assign = await s1.accepts(await s1.hears("assign"), have=kept)
                assert assign.rewound
                assert keys(s1, await s1.hears("batch")) == [b"b"]
            await world.leaves(s1)
        async with world.publisher():
            await world.register(s1)
            await s1.hears("hello")
            assign = await s1.accepts(await s1.hears("assign"), have=kept)
            batch = await s1.hears("batch")
            await s1.processed(batch)
            await s1.acks(await s1.hears("datamarker"))
            await eventually(lambda: not world.markers.records[KEY].rewound, "stored")
            s1.hang_up()
            assert not (await s1.hears_later("assign")).assign.rewound


async def test_a_stream_ends_when_its_subscribers_certificate_is_revoked(world: World, tmp_path: Path) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    theirs = await asyncio.to_thread(authority.issue, "s1")
    crl = await asyncio.to_thread(authority.revoke)
    mine = await asyncio.to_thread(lambda: authority.issue("db1", crl=crl))
    world.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))
    world.settings["heartbeat"] = 600.0 * FAST  # or silence would end it, and the next check find the revocation
    credentials = (await asyncio.to_thread(Trust, theirs)).server_credentials()
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1", credentials=credentials) as s1, world.publisher() as publisher:
        await world.register(s1)
        await eventually(lambda: any(one.connected for one in publisher.assigner.streams()), "it is connected")
        found = {sample.metric.name: sample for sample in await collect(publisher)}
        assert found["wormhole_publisher_certificate_end_time_seconds"].labels[:3] == ("shop", "main", "log")
        await asyncio.to_thread(authority.revoke, theirs.cert)
        await eventually(
            lambda: any("was revoked on 20" in one.problem.text for one in publisher.assigner.streams()),
            "its stream ended",
        )
        assert not any(one.connected for one in publisher.assigner.streams())
