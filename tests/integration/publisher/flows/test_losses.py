"""Missing log: the application is told what, decides, and the flow goes on behind it or stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caravan.flow import CaravanFlowState
from publisher.publisher import Publisher
from publisher.push.stages import PublisherFlowState
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.errors import Diverged, PositionError, SourceUnavailable, UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.ports.log_source import PurgedInside
from wormhole.ports.marker_store import MarkerWrite, StoredFlow
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import push_pb2


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("proceed", [True, False])
async def test_what_was_written_past_the_log_is_reported_and_decided(
    world: World, proceed: bool, s1: ScriptedSubscriber, publisher: Publisher, assign: push_pb2.Assign
) -> None:
    await s1.hears("batch")
    world.source.skip(2)
    world.commit("d")
    loss = (await s1.hears_later("data_loss")).data_loss
    assert (loss.kind, loss.first_missing, loss.last_missing) == (push_pb2.DataLoss.NOT_LOGGED, "2", "3")
    flow = publisher.assigner.flows[KEY]
    assert flow.delivery.caravan_flow is not None
    assert flow.delivery.caravan_flow.state is CaravanFlowState.HELD
    await s1.says(loss_decision=push_pb2.LossDecision(flow=assign.flow, epoch=assign.epoch, proceed=proceed))
    if proceed:
        assert keys(s1, await s1.hears_later("batch")) == [b"d"]
    else:
        await eventually(lambda: "halts at a data loss" in flow.cause, "told")
        assert flow.problem.hint.startswith(f"`wormholectl repair {flow.name}` sends the rows that it lacks; ")
        assert flow.state(frozenset()) is PublisherFlowState.HELD


@pytest.mark.usefixtures("first")
async def test_a_purged_marker_is_reported_with_its_range(world: World) -> None:
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await eventually(lambda: KEY in world.markers.records, "registered")
        world.commit("b")
        world.source.purge()
        world.commit("c")
        async with world.publisher():
            await world.register(s1)
            assign = await taken(s1)
            loss = (await s1.hears("data_loss")).data_loss
            assert (loss.kind, loss.first_missing, loss.last_missing) == (push_pb2.DataLoss.PURGED, "1", "2")
            assert "Next: " not in loss.message, "the flow's next step is another one than the source's"
            await s1.says(loss_decision=push_pb2.LossDecision(flow=assign.flow, epoch=assign.epoch, proceed=True))
            assert keys(s1, await s1.hears("batch")) == [b"c"]


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("trouble", [SourceUnavailable("away"), UsageError("denied")])
async def test_a_loss_is_reported_although_the_log_was_away_when_it_was_found(
    trouble: WormholeError, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        world.source.purge()
        earliest, asked = world.source.earliest, []

        def away_at_first() -> Datamarker:
            asked.append(True)
            if len(asked) == 1:
                raise trouble
            return earliest()

        async with world.publisher():
            monkeypatch.setattr(world.source, "earliest", away_at_first)
            await world.register(s1)
            await taken(s1)
            assert (await s1.hears("data_loss")).data_loss.kind == push_pb2.DataLoss.PURGED


async def test_what_was_prepared_before_a_gap_is_still_read_when_it_is_passed(world: World) -> None:
    world.application()
    origin = world.source.latest().order
    marker = replace(world.commit("a"), read_from=origin)
    world.markers.records[KEY] = StoredFlow(marker, 0, "earliest")
    world.source.skip(3)
    world.commit("b")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await taken(s1)
        loss = (await s1.hears("data_loss")).data_loss
        resume = marker_from_message(loss.resume)
        assert (resume.delivered, resume.order, resume.read_from) == ("4", marker.order, origin)


async def test_a_log_that_lost_its_tail_is_gone_back_in_only_by_a_rewind(world: World) -> None:
    """Its places are smaller than the stored marker: to store one of them the flow needs a rewind, not a write."""
    world.application()
    before = world.commit("a")
    stored = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.records.store.store([MarkerWrite(KEY, 0, stored)])
        world.source.restore(before)
        async with world.publisher():
            await world.register(s1)
            first = await taken(s1)
            loss = (await s1.hears("data_loss")).data_loss
            assert loss.kind == push_pb2.DataLoss.DIVERGED
            await s1.says(loss_decision=push_pb2.LossDecision(flow=first.flow, epoch=first.epoch, proceed=True))
            await s1.hears("revoke")
            await s1.releases(first)
            second = await s1.accepts(await s1.hears("assign"))
            assert second.epoch > first.epoch
            assert marker_from_message(second.marker) == marker_from_message(loss.resume)
            batch = await s1.hears("batch")
            await s1.processed(batch)
            offered = await s1.hears("datamarker")
            await s1.acks(offered)
            resumed: Datamarker = marker_from_message(offered.datamarker.marker)
            await eventually(lambda: world.markers.records[KEY].marker == resumed, "stored")


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("there", [True, False])
async def test_what_was_delivered_and_is_gone_is_passed_where_the_log_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    opened, locate, failing = world.source.open, world.source.locate, [True]

    def open_(marker: Datamarker) -> object:
        if failing and marker.order == world.source.earliest().order:
            raise Diverged("gone", first_missing="7", last_missing="9", resume="behind it")
        return opened(marker)

    def locate_(text: str) -> Datamarker:
        if text != "behind it":
            return locate(text)
        failing.clear()
        if not there:
            raise PositionError("no such place")
        return world.source.latest()

    monkeypatch.setattr(world.source, "open", open_)
    monkeypatch.setattr(world.source, "locate", locate_)
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        assign = await taken(s1)
        loss = (await s1.hears("data_loss")).data_loss
        assert (loss.kind, loss.first_missing, loss.last_missing) == (push_pb2.DataLoss.DIVERGED, "7", "9")
        await s1.says(loss_decision=push_pb2.LossDecision(flow=assign.flow, epoch=assign.epoch, proceed=True))
        world.commit("b")
        assert keys(s1, await s1.hears_later("batch"))[0] == (b"b" if there else b"a")


async def test_a_range_inside_what_can_be_read_is_passed_where_the_log_is_there_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older log than the flow's marker can be read still: resumed there, the flow would meet the same hole for ever."""
    world.application()
    begin, stored = world.source.latest(), world.commit("a")
    resume = world.commit("b")
    world.markers.records[KEY] = StoredFlow(stored, 0, "earliest")
    opened = world.source.open

    def open_(marker: Datamarker) -> object:
        if begin.order < marker.order < resume.order:
            raise PurgedInside("a hole", first_missing="2", last_missing="2", resume=resume)
        return opened(marker)

    monkeypatch.setattr(world.source, "open", open_)
    assert world.source.earliest().order < stored.order
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        assign = await taken(s1)
        loss = (await s1.hears("data_loss")).data_loss
        assert (loss.kind, loss.first_missing, loss.last_missing) == (push_pb2.DataLoss.PURGED, "2", "2")
        assert marker_from_message(loss.resume) == resume
        await s1.says(loss_decision=push_pb2.LossDecision(flow=assign.flow, epoch=assign.epoch, proceed=True))
        world.commit("c")
        assert keys(s1, await s1.hears_later("batch")) == [b"c"]
