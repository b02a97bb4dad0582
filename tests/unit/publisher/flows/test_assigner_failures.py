"""Who receives what while the store or coordination fails, and when the publisher stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.eventually import eventually
from tests.unit.publisher.flows.assigner_desk import MINE, Desk, two
from wormhole.model.errors import CoordinationLost, MarkerStoreError
from wormhole.ports.marker_store import FlowKey


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    desk = Desk(monkeypatch)
    yield desk
    await desk.assigner.close(0)


# --- what goes wrong


async def test_nothing_moves_without_contact(desk: Desk) -> None:
    first, second, _ = await two(desk)
    desk.present.contact = False
    desk.application(pin={MINE: "s2"})
    assert await desk.round() == []
    first.breaks("broken")
    desk.clock.now += 1e6
    assert await desk.round() == []
    desk.present.contact = True
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    assert second.flows


async def test_contact_that_goes_between_two_of_many_stops_the_rest(desk: Desk) -> None:
    desk.before("s1", *"abc")

    def raise_epoch(flow: FlowKey, above: int = 0) -> int:
        desk.present.contact = False
        return 1

    desk.store.raise_epoch = raise_epoch  # type: ignore[method-assign]
    await desk.round()
    assert desk.stream("s1").flows == []
    del desk.store.raise_epoch
    desk.present.contact = True
    await desk.round()
    assert len(desk.stream("s1").flows) == 3


@pytest.mark.parametrize("at", ["settle", "epoch"])
async def test_a_store_that_fails_is_tried_again_and_reported_once(
    desk: Desk, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    flows = desk.before("s1", *"abc")
    failure = MarkerStoreError("the disk is full", hint="make space")
    if at == "settle":
        desk.settle_failure = failure
    else:
        desk.store.failure = failure
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            done = await desk.round()
            assert len([step for step in done if step.startswith("epoch")]) <= 1, "each of many waited for the store"
    [record] = caplog.records
    assert "3 flows cannot be given" in record.getMessage()
    assert "make space" in record.getMessage()
    assert {flow.cause for flow in flows} == {"the disk is full"}
    desk.settle_failure = desk.store.failure = None
    await desk.round()
    assert desk.stream("s1").flows == flows


async def test_nothing_is_given_away_in_an_epoch_that_could_not_be_recorded(desk: Desk) -> None:
    flows = desk.before("s1", *"abc")
    desk.record_failure = CoordinationLost("ZooKeeper does not answer")
    await desk.round()
    assert desk.stream("s1").flows == []
    assert {flow.cause for flow in flows} == {"ZooKeeper does not answer"}
    desk.record_failure = None
    done = await desk.round()
    assert desk.stream("s1").flows == flows
    assert [step for step in done if step.startswith("assign")] == [f"assign {shard} to s1 in 2" for shard in "abc"]


@pytest.mark.parametrize("at", ["epoch", "letters"])
async def test_what_is_damaged_of_one_flow_holds_that_flow_only(
    desk: Desk, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    desk.application()
    held, *others = (desk.flow(shard) for shard in "abc")
    damage = MarkerStoreError("/markers/a holds no valid datamarker", flow="app/a")
    ask = desk.store.raise_epoch if at == "epoch" else desk.prepare

    def broken(about: FlowKey | PublisherFlow, *above: int) -> Any:
        if about in (held, held.key):
            raise damage
        return ask(about, *above)  # type: ignore[arg-type]

    if at == "epoch":
        desk.store.raise_epoch = broken  # type: ignore[method-assign, assignment]
    else:
        desk.prepare = broken  # type: ignore[method-assign, assignment]
    desk.joins("s1")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await desk.round()
    assert desk.stream("s1").flows == others
    assert held.cause == "/markers/a holds no valid datamarker (flow app/a)"
    assert bool(held.lost_record) is (at == "epoch")
    [record] = caplog.records
    assert record.getMessage().startswith("app/a is held")


async def test_a_flow_whose_datamarker_is_missing_is_held_and_the_others_go(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deleted its record: to begin it anywhere would be a silent gap."""
    desk.application()
    held, other = desk.flow("a"), desk.flow("b")
    desk.store.forget(held.key)
    desk.joins("s1")
    with caplog.at_level(logging.ERROR):
        await desk.round()
        await desk.round()
    assert desk.stream("s1").flows == [other]
    assert held.state(frozenset()) is PublisherFlowState.HELD
    assert str(held.lost_record).startswith(
        "its datamarker is missing in the marker store (flow app/a) [marker-missing]. Next: `wormholectl "
    )
    [record] = caplog.records
    assert "app/a is held" in record.getMessage()


@pytest.mark.parametrize("change", ["the stream broke", "the application went", "the publisher stops"])
async def test_what_changes_while_the_epoch_is_raised_is_looked_at_again(desk: Desk, change: str) -> None:
    desk.application()
    flow = desk.flow(MINE)
    stream = desk.joins("s1")
    raising = MemoryMarkerStore.raise_epoch

    def raise_epoch(flow: FlowKey, above: int = 0) -> int:
        match change:
            case "the stream broke":
                stream.connected = False
            case "the application went":
                desk.assigner.flows.clear()
            case _:
                desk.assigner._stopping = True
        return raising(desk.store, flow)

    desk.store.raise_epoch = raise_epoch  # type: ignore[method-assign]
    await desk.round()
    assert (stream.flows, flow.holding.epoch) == ([], 0)


async def test_an_outage_of_coordination_is_no_failure_of_the_assigner(desk: Desk) -> None:
    [flow] = desk.before("s1", MINE)
    desk.store.failure = CoordinationLost("ZooKeeper is away")
    await desk.round()
    assert flow.cause == "ZooKeeper is away"


# --- the end


async def test_close_asks_for_everything_and_waits(desk: Desk) -> None:
    first, [a, b] = await desk.at("s1", "a", "b")
    desk.told.clear()
    closing = asyncio.create_task(desk.assigner.close(10.0))
    await eventually(lambda: a.releasing and b.releasing, "asked")
    assert desk.told == [f"revoke {shard} at s1: the publisher stops" for shard in "ab"]
    first.releases(a)
    assert await desk.round() == [], "given again while stopping"
    assert not first.ended.is_set()
    first.releases(b)
    await closing
    assert first.ended.is_set()


async def test_close_does_not_wait_longer_than_its_limit(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    first, _ = await desk.at("s1", "a")
    with caplog.at_level(logging.WARNING):
        await desk.assigner.close(0.02)
    assert first.ended.is_set()
    assert "subscribers still work on some flows" in caplog.text


async def test_a_second_signal_hangs_up_without_waiting(desk: Desk) -> None:
    first, _ = await desk.at("s1", "a")
    closing = asyncio.create_task(desk.assigner.close(60.0))
    await eventually(lambda: "revoke a at s1: the publisher stops" in desk.told, "asked")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await first.ended.wait()


async def test_close_waits_for_streams_that_were_replaced(desk: Desk) -> None:
    await desk.at("s1", "a")
    former = desk.stream("s1")
    desk.registered("s1", started=2.0)
    await desk.assigner.close(0.02)
    assert former.ended.is_set()


async def test_at_rest_nothing_is_decided_anew_and_a_late_release_is_seen_all_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, [flow] = await desk.at("s1", MINE)
    assert await desk.round() == []
    decided: list[object] = []
    decide = desk.assigner._decide

    async def noted(app: Any) -> None:
        decided.append(app)
        await decide(app)

    monkeypatch.setattr(desk.assigner, "_decide", noted)
    await desk.assigner._look(changed=False)
    assert decided == []
    desk.assigner._changed.clear()
    desk.assigner.recall(flow, "it goes elsewhere")
    assert desk.assigner._changed.is_set()
    await desk.assigner._look(changed=True)
    desk.clock.now += 1e6
    await desk.assigner._look(changed=False)
    assert len(decided) == 2
    assert f"hang up on s1: it did not let go of {flow.name} in time" in desk.told
