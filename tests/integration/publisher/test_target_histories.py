"""An application keeps its datamarker with its effects, and the database with both was filled from another history of
the log: nothing is delivered, and the flow keeps its own datamarker until the right database is back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from publisher.publisher import Publisher
from publisher.push.stages import Stage
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, refused, request, served
from tests.integration.publisher.receiving import KEY, keys
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2


async def _delivered(world: World, s1: ScriptedSubscriber, *texts: str) -> list[Datamarker]:
    """The publisher has offered and stored a datamarker behind each."""
    await world.register(s1)
    await s1.hears("hello")
    await s1.accepts(await s1.hears("assign"))
    await s1.processed(await s1.hears_later("batch"))
    markers = []
    for text in texts:
        markers.append(world.commit(text))
        batch = await s1.hears_later("batch")
        assert keys(s1, batch) == [text.encode()]
        await s1.processed(batch)
        while (frame := await s1.hears_later("datamarker")).datamarker.marker != marker_to_message(markers[-1]):
            pass
        await s1.acks(frame)
        await eventually(lambda: world.markers.records[KEY].marker == markers[-1], "stored")
    return markers


async def _returns(world: World, s1: ScriptedSubscriber, have: Datamarker) -> push_pb2.Assign:
    """The subscriber is restarted, and finds ``have`` in its database."""
    s1.hang_up()
    return await s1.accepts(await s1.hears_later("assign"), have=have)


async def _held(publisher: Publisher) -> str:
    flow = publisher.assigner.flows[KEY]
    await eventually(lambda: flow.stage is Stage.HELD, "held")
    assert flow.problem.code == "target-diverged"
    assert flow.problem.hint.endswith(f"`wormholectl flows resume {FLOW}`")
    return flow.cause


def _of_another(marker: Datamarker, offset: int = 0) -> Datamarker:
    """A datamarker of another server's log."""
    assert marker.anchor is not None
    order = replace(marker.order, offset=marker.order.offset + offset)
    return replace(marker, order=order, read_from=order, anchor=replace(marker.anchor, id="other:7", checksum=7))


@pytest.mark.parametrize("place", ["before", "at", "behind", "future"])
async def test_a_datamarker_of_another_server_is_refused_until_the_right_database_is_back(
    world: World, s1: ScriptedSubscriber, place: str
) -> None:
    world.source.release = lambda oldest: None  # type: ignore[method-assign]  # a purged place proves nothing
    world.application()
    world.commit("begin")
    async with world.publisher() as publisher:
        control = await served(publisher)
        first, second = await _delivered(world, s1, "a", "b")
        behind = world.commit("c")
        other = {"before": first, "at": second, "behind": behind, "future": _of_another(behind, 1000)}[place]
        assign = await _returns(world, s1, _of_another(other))
        assert str(other.order) in await _held(publisher)
        assert world.markers.records[KEY].marker == second
        assert (await refused(control, request("accept_loss"))).code
        await control.change(request("resume"))
        await s1.hears_later("revoke")
        await s1.releases(assign)
        await s1.accepts(await s1.hears_later("assign"), have=second)
        assert keys(s1, await s1.hears_later("batch")) == [b"c"]


async def test_effects_of_what_a_restored_server_lost_are_refused(world: World, s1: ScriptedSubscriber) -> None:
    """The publisher's datamarker is before the point, so only the application has what was lost."""
    world.application()
    world.commit("begin")
    async with world.publisher() as publisher:
        await _delivered(world, s1, "a")
        stored = world.markers.records[KEY].marker
        s1.hang_up()
        assign = await s1.hears_later("assign")  # so that nothing of what follows is offered
        lost = world.commit("b")
        world.source.restore(stored)
        for text in ("x", "y"):
            world.commit(text)
        await s1.accepts(assign, have=lost)
        await _held(publisher)
        assert world.markers.records[KEY].marker == stored


async def test_what_another_process_offered_is_gone_on_from(world: World, s1: ScriptedSubscriber) -> None:
    """This one has offered other datamarkers; the log proves the place."""
    world.application()
    world.commit("begin")
    async with world.publisher() as publisher:
        await _delivered(world, s1, "a", "b")
        assert publisher.assigner.flows[KEY].delivery._offered
        s1.hang_up()
        assign = await s1.hears_later("assign")
        have = world.commit("c")
        await s1.accepts(assign, have=have)
        await eventually(lambda: world.markers.records[KEY].marker == have, "stored")
        world.commit("d")
        assert keys(s1, await s1.hears_later("batch")) == [b"d"]


async def test_a_log_that_is_another_one_for_the_flow_too_is_a_loss(world: World, s1: ScriptedSubscriber) -> None:
    """A restored source, not a wrong database: the application is asked, as without a datamarker of its own."""
    world.application()
    world.commit("begin")
    async with world.publisher() as publisher:
        first, _, third = await _delivered(world, s1, "a", "b", "c")
        world.source.restore(first, new_incarnation=True)
        flow = publisher.assigner.flows[KEY]
        await _returns(world, s1, replace(third, committed_at_us=third.committed_at_us + 1))
        await eventually(lambda: flow.stage is Stage.DECIDING, "asked")
        assert operated(publisher).flow_reports.status(flow).loss_pending
