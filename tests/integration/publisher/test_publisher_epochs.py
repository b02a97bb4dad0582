"""Epochs that a subscriber holds, flows that were set back, and the end of a publisher."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.publisher import Publisher
from publisher.push import epoch_conflict
from publisher.push.stages import PublisherFlowState
from publisher.wiring import operated
from tests.integration.publisher.conftest import World, world_of_either_direction
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.certificates import Authority
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import FlowRecord
from wormhole.host.trust import Trust
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.marker_store import FlowKey, MarkerWrite
from wormhole.wire.v1 import push_pb2

world = world_of_either_direction
once = pytest.mark.parametrize("world", [False], indirect=True)
"""Which side dials makes no difference here."""


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


@once
@pytest.mark.usefixtures("first")
async def test_a_record_that_took_long_does_not_replace_a_later_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_go = asyncio.Event(), asyncio.Event()
    write = MemoryCoordinator.write_flows

    async def slowly(self: MemoryCoordinator, records: Mapping[FlowKey, FlowRecord]) -> None:
        if not writing.is_set():
            writing.set()
            await may_go.wait()
        await write(self, records)

    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        flow = publisher.assigner.flows[KEY]
        monkeypatch.setattr(MemoryCoordinator, "write_flows", slowly)
        earlier = asyncio.create_task(publisher.states.note([flow]))
        await writing.wait()
        flow.holding.raised(flow.holding.epoch + 7)
        later = asyncio.create_task(publisher.states.note([flow]))
        for _ in range(5):  # it would have written by now: that takes one call in a thread
            await asyncio.to_thread(publisher.states.lead_flows)
        may_go.set()
        await asyncio.gather(earlier, later)
        assert world.coordination.flows[KEY].epoch == flow.holding.epoch


SERVED = {PublisherFlowState.LIVE, PublisherFlowState.CATCHING_UP}


@once
@pytest.mark.usefixtures("first")
async def test_a_store_that_was_set_back_goes_on_above_the_epoch_that_was_seen(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        publisher.assigner.flows[KEY].delivery.acknowledged = True
        await world.register(s1)
        await s1.hears("hello")
        await refuses(s1, await s1.hears("assign"), 40)
        again = await s1.accepts(await s1.hears("assign"))
        assert again.epoch == 41
        assert keys(s1, await s1.hears("batch")) == [b"a"]
        assert world.markers.records[KEY].epoch == 41
        assert publisher.assigner.flows[KEY].state(publisher.states.lead_flows()) in SERVED
    [said] = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert "s1 has seen epoch 40" in said
    assert "comes again" in said


@once
@pytest.mark.usefixtures("first")
async def test_a_flow_that_a_subscriber_knows_and_the_store_does_not_is_held(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    """The store is new: with ``start = "latest"`` what was committed in between would be lost without a word."""
    await world.register(s1)
    await s1.hears("hello")
    await refuses(s1, await s1.hears("assign"), 40)
    flow = publisher.assigner.flows[KEY]
    await eventually(lambda: bool(flow.control.missing), "held")
    assert "its datamarker is missing: s1 has had app/log.t in epoch 40" in str(flow.control.missing)
    assert "`wormholectl flows accept-loss app/log.t`" in str(flow.control.missing)
    assert world.markers.records[KEY].control.missing == flow.control.missing
    assert world.markers.records[KEY].epoch == 41
    assert operated(publisher).flow_reports.state(flow, frozenset()) is PublisherFlowState.HELD
    await publisher.records.control(flow, lambda control: replace(control, missing=NO_PROBLEM))  # an operator accepts
    publisher.assigner.go_on(flow)
    assert (await s1.accepts(await s1.hears_later("assign"))).epoch == 42


async def test_a_flow_that_another_publisher_has_is_held_names_it_and_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_conflict, "_PAUSE_S", 3600.0)
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
            before = flow.holding.conflict
            await refuses(s1, assign, 40, contested=True)
            await eventually(lambda before=before: flow.holding.conflict is not before, "refused")  # type: ignore[misc]
            assert operated(publisher).flow_reports.state(flow, frozenset()) is PublisherFlowState.HELD
            assert "another publisher, the other one, serves this flow" in str(
                operated(publisher).flow_reports.cause(flow)
            )
            assert flow.holding.conflict is not None
            flow.holding.refused(replace(flow.holding.conflict, until=0.0))  # the pause is over
            publisher.assigner.changed()
            assign = await s1.hears_later("assign")
            assert (assign.assign.epoch, assign.assign.yields) == (epoch, True)
        await s1.accepts(assign)
        assert keys(s1, await s1.hears("batch")) == [b"a"]
        assert operated(publisher).flow_reports.state(flow, publisher.states.lead_flows()) in SERVED
        assert not operated(publisher).flow_reports.cause(flow)


@pytest.mark.usefixtures("first", "assign")
async def test_a_flow_is_not_called_live_while_nothing_may_be_sent(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await s1.hears("batch")
    flow = publisher.assigner.flows[KEY]
    registration = publisher.ownership._registration
    assert registration is not None
    registration.held = False  # type: ignore[misc]
    assert operated(publisher).flow_reports.state(flow, publisher.states.lead_flows()) is PublisherFlowState.HELD
    assert "another publisher took the log over" in str(operated(publisher).flow_reports.cause(flow))
    await s1.hears("hello")  # the streams were hung up, and nothing is assigned
    await eventually(lambda: flow.holding.subscriber is None or flow.delivery.caravan_flow is None, "let go")
    registration.held = True  # type: ignore[misc]
    publisher.assigner.changed()
    await s1.accepts(await s1.hears("assign"))


@once
async def test_a_flow_that_was_set_back_is_delivered_again_whatever_the_application_kept(
    world: World, first: Datamarker
) -> None:
    kept = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.records.store.store([MarkerWrite(KEY, 0, kept)])
            publisher.records.store.rewind(KEY, first)
        for _ in range(2):  # also after a restart, while nothing was acknowledged
            async with world.publisher():
                await world.register(s1)
                await s1.hears("hello")
                assign = await s1.accepts(await s1.hears("assign"), have=kept)
                assert assign.rewound
                # On a busy machine the datamarker that it was set back to may be offered before.
                assert keys(s1, await s1.hears_later("batch")) == [b"b"]
            await world.leaves(s1)
        async with world.publisher():
            await world.register(s1)
            await s1.hears("hello")
            assign = await s1.accepts(await s1.hears("assign"), have=kept)
            batch = await s1.hears_later("batch")
            await s1.processed(batch)
            await s1.acks(await s1.hears("datamarker"))
            await eventually(lambda: not world.markers.records[KEY].rewound, "stored")
            s1.hang_up()
            assert not (await s1.hears_later("assign")).assign.rewound


@once
async def test_a_rewind_is_delivered_once_although_the_publisher_dies_twice_after_it(
    world: World, first: Datamarker
) -> None:
    """The application stores the number of the move in one transaction with its datamarker and its effects."""
    kept = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.records.store.store([MarkerWrite(KEY, 0, kept, "hash")])
            move = publisher.records.store.rewind(KEY, first)
        for life in range(3):
            async with world.publisher():
                await world.register(s1)
                await s1.hears("hello")
                frame = await s1.hears("assign")
                assert (frame.assign.move, frame.assign.acknowledged) == (move, True)
                if not life:
                    await s1.accepts(frame, have=kept)  # it does not know the move yet
                    assert keys(s1, await s1.hears_later("batch")) == [b"b"]  # and commits this with the number
                else:
                    await s1.accepts(frame, have=kept, move=move)
                    end = world.commit(f"after {life}")
                    assert keys(s1, await s1.hears_later("batch")) == [b"after %d" % life]
                    kept = end
            await world.leaves(s1)
    assert world.markers.records[KEY].move == move


@once
async def test_only_a_move_that_the_application_did_not_make_is_numbered(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    last = world.commit("b")
    async with world.publisher() as publisher:
        records = publisher.records
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        flow = publisher.assigner.flows[KEY]
        assert not flow.delivery.was_used
        await records.move(flow, replace(flow.delivery.marker, committed_at_us=7))
        assert world.markers.records[KEY].move == 0, "it is there already"
        await records.move(flow, last)
        move = world.markers.records[KEY].move
        assert move == flow.holding.epoch
        await world.register(s1)
        await s1.hears("hello")
        assign = await s1.accepts(await s1.hears("assign"), have=first, move=move)
        await s1.hears_later("revoke")
        await s1.releases(assign)
        again = (await s1.hears_later("assign")).assign
        assert (again.move, again.epoch > move, again.acknowledged) == (move, True, True)
        assert world.markers.records[KEY].move == move


@once
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
        found = {sample.metric.name: sample for sample in await operated(publisher).metrics.collect()}
        assert found["wormhole_publisher_certificate_end_time_seconds"].labels[:3] == ("shop", "main", "log")
        await asyncio.to_thread(authority.revoke, theirs.cert)
        await eventually(
            lambda: any("was revoked on 20" in one.problem.text for one in publisher.assigner.streams()),
            "its stream ended",
        )
        assert not any(one.connected for one in publisher.assigner.streams())
