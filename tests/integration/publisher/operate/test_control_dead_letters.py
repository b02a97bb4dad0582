"""What operators do about parked updates, and about a flow without a record."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from publisher.flows.refused_error import RefusedError
from publisher.operate.control import Control
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, finished, refused, request, served
from tests.integration.publisher.receiving import KEY, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.model.errors import UsageError
from wormhole.model.problem import Problem
from wormhole.ports.marker_store import FlowControl
from wormhole.wire.problems import problem_from
from wormhole.wire.v1 import admin_pb2


@pytest.mark.usefixtures("first")
async def test_parked_updates_are_the_offices_business_and_shown_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.publisher() as publisher:
        control = await served(publisher)
        asked: list[tuple[str, str, bool]] = []

        def office(what: str) -> None:
            async def ask(flow: PublisherFlow, key: str, preview: bool = False, anyone: bool = False) -> str:
                assert flow is publisher.assigner.flows[KEY]
                assert not anyone
                asked.append((what, key, preview))
                return f"{what} of {key}"

            monkeypatch.setattr(publisher.dead_letters, what, ask)

        office("retry")
        office("discard")
        preview = await control.change(request("retry_dead_letters", preview=True, key="t:7"))
        assert list(preview.notes) == ["retry of t:7"]
        assert asked == [("retry", "t:7", True)]
        await control.change(request("discard_dead_letters"))
        assert asked[1:] == [("discard", "", True), ("discard", "", False)]
    [entry] = world.coordination.history
    assert (entry.what, entry.after) == ("discard-dead-letters", "all")


@pytest.mark.usefixtures("first")
async def test_where_nothing_is_parked_it_says_so(publisher: Publisher, control: Control) -> None:
    for what in ("retry_dead_letters", "discard_dead_letters"):
        with pytest.raises(UsageError):
            await control.change(request(what))
    reply = await operated(publisher).letters.parked(admin_pb2.DeadLettersRequest(flow=FLOW))
    assert (len(reply.letters), reply.total) == (0, 0)
    with pytest.raises(RefusedError, match="there is no flow"):
        await operated(publisher).letters.parked(admin_pb2.DeadLettersRequest(flow="app/log.x"))


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("damage", ["registered as missing", "deleted while it is served"])
async def test_a_flow_without_a_record_goes_on_where_an_operator_says(
    world: World, s1: ScriptedSubscriber, damage: str, publisher: Publisher
) -> None:
    await world.register(s1)
    assigned = await taken(s1)
    control = await served(publisher)
    flow = publisher.assigner.flows[KEY]
    begin = flow.delivery.marker
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears_later("datamarker"))
    await eventually(lambda: flow.delivery.durable != begin, "stored")
    marker, epoch = flow.delivery.marker, flow.holding.epoch
    if damage == "registered as missing":
        missing = Problem("its datamarker is missing", "say `flows accept-loss`")
        await publisher.records.control(flow, lambda control: replace(control, missing=missing))
    else:
        await asyncio.to_thread(publisher.records.store.forget, KEY)
    publisher.assigner.again(flow, "given anew")
    await finished(s1, assigned)
    await eventually(lambda: "its datamarker is missing" in flow.cause, "held")
    listed = operated(publisher).flow_reports.status(flow, frozenset())
    assert (listed.state, listed.loss_pending) == ("held", True)
    assert listed.problem.text.startswith("its datamarker is missing")
    assert "flows accept-loss" in listed.problem.hint
    assert listed.cause == str(problem_from(listed.problem))
    assert "`accept-loss`" in str((await refused(control, request("resume"))).hint)
    preview = await control.change(request("accept_loss", preview=True))
    assert str(marker) in preview.notes[0]
    await control.change(request("accept_loss"))
    assert (await s1.hears_later("assign")).assign.epoch > epoch
    assert flow.delivery.marker == marker
    assert world.markers.records[KEY].control == FlowControl()
