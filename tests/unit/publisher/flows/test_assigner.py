"""Who receives what, decided over streams and a clock that the test moves; `test_publisher.py` has the same over
gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import cast

import pytest

from publisher.flows import assigner as module
from publisher.flows.assignment import assign
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from publisher.push.stream import SubscriberStream
from tests.support.eventually import eventually
from tests.support.markers import marker
from tests.unit.publisher.flows.assigner_desk import GRACE, HANDLER, MINE, Desk, two
from wormhole.filters import Filter


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    desk = Desk(monkeypatch)
    yield desk
    await desk.assigner.close(0)


# --- the four steps


async def test_a_move_is_revoke_release_settle_epoch_assign(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    assert desk.told == ["settle", "epoch a", "record a in 1", "assign a to s1 in 1"]
    desk.told.clear()
    desk.joins("s2", "s1")
    desk.application(pin={"a": "s2"})
    assert await desk.round() == ["revoke a at s1: moves to s2"]
    assert flow.state(frozenset()) is PublisherFlowState.OPENING
    assert await desk.round() == [], "not asked twice, not given before it is released"
    first.releases(flow)
    assert await desk.round() == ["settle", "epoch a", "record a in 2", "assign a to s2 in 2"]
    assert (flow.holding.subscriber, flow.holding.epoch, flow.releasing) == ("s2", 2, False)


async def test_many_flows_are_settled_once_and_spread_as_computed(desk: Desk) -> None:
    desk.application()
    shards = [f"s{number}" for number in range(300)]
    for shard in shards:
        desk.flow(shard)
    desk.registered("s1", "s2", "s3")
    for name in ("s1", "s2", "s3"):
        desk.stream(name).connects()
    done = await desk.round()
    assert done.count("settle") == 1
    wanted = assign(shards, {"s1": 1.0, "s2": 1.0, "s3": 1.0})
    found = {flow.shard: name for name in ("s1", "s2", "s3") for flow in desk.stream(name).flows}
    assert found == wanted
    desk.clock.now += 1e6
    assert await desk.round() == [], "who has its shard is left alone"


async def test_a_shard_that_appears_or_goes_is_seen(desk: Desk) -> None:
    stream, [flow] = await desk.at("s1", "a")
    other = desk.flow("b")
    assert "assign b to s1 in 1" in await desk.round()
    assert stream.flows == [flow, other]


async def test_the_deciding_task_wakes_by_every_change_and_by_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.01)
    desk.application()
    desk.flow("a")
    running = asyncio.create_task(desk.assigner.run())
    try:
        desk.registered("s1", "s2")
        desk.stream("s1").connects()
        desk.stream("s2").connects()
        await eventually(lambda: desk.stream("s1").flows or desk.stream("s2").flows, "given")
        holder = next(stream for stream in desk.dialled if stream.flows)
        holder.breaks("gone")
        desk.clock.now += GRACE + 1
        other = next(stream for stream in desk.dialled if stream is not holder)
        await eventually(lambda: other.flows, "moved when its time was over")
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# --- who vanishes


async def test_a_subscriber_that_leaves_gives_its_shards_up_at_once(desk: Desk) -> None:
    first, _, _ = await two(desk)
    first.leaves()
    assert f"assign {MINE} to s2 in 2" in await desk.round()


@pytest.mark.parametrize(
    ("vacant", "patience"), [(True, GRACE), (False, GRACE + HANDLER)], ids=["nobody listens", "no answer"]
)
@pytest.mark.parametrize("listed", [True, False])
async def test_a_broken_stream_keeps_its_shards_while_it_may_come_back(
    desk: Desk, vacant: bool, patience: float, listed: bool
) -> None:
    first, second, flow = await two(desk)
    first.breaks("broken", vacant=vacant)
    if not listed:
        desk.assigner.subscribers("app", [second.info])
    desk.clock.now += patience - 1
    assert await desk.round() == []
    assert (flow.holding.subscriber, flow.cause) == ("s1", "waiting for s1")
    desk.clock.now += 2
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    assert flow.holding.subscriber == "s2"


async def test_one_that_comes_back_in_time_goes_on(desk: Desk) -> None:
    first, _, _ = await two(desk)
    first.breaks("broken")
    desk.clock.now += GRACE - 1
    await desk.round()
    first.connects()
    assert await desk.round() == ["settle", f"epoch {MINE}", f"record {MINE} in 2", f"assign {MINE} to s1 in 2"]


async def test_one_whose_entry_went_and_that_is_still_connected_is_asked_first(desk: Desk) -> None:
    first, second, flow = await two(desk)
    desk.assigner.subscribers("app", [second.info])
    desk.clock.now += GRACE - 1
    assert await desk.round() == []
    desk.clock.now += 2
    assert await desk.round() == [f"revoke {MINE} at s1: moves to s2"]
    first.releases(flow)
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    await first.ended.wait()
    assert desk.streams() == [second]


async def test_one_that_gives_back_unasked_is_leaving_and_gets_nothing_more(desk: Desk) -> None:
    """While a handler of its other shard still runs it would give back whatever it got, as fast as it came."""
    first, second, flow = await two(desk)
    first.releases(flow)
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    second.releases(flow)
    assert await desk.round() == []
    first.connects()
    assert f"assign {MINE} to s1 in 3" in await desk.round(), "it came back"


async def test_a_shard_whose_holder_was_lost_does_not_move_before_its_handler_can_have_ended(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    desk.joins("s2", "s1")
    first.breaks("broken", vacant=False)
    desk.application(pin={"a": "s2"})
    assert await desk.round() == []
    assert "a handler may still run at s1" in flow.cause
    desk.clock.now += GRACE + HANDLER + 1
    assert "assign a to s2 in 2" in await desk.round()


async def test_a_lost_holder_that_is_back_is_asked_before_its_shard_moves(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    desk.joins("s2", "s1")
    first.breaks("broken", vacant=False)
    desk.application(pin={"a": "s2"})
    first.connects()
    assert "assign a to s1 in 2" in await desk.round()
    assert await desk.round() == ["revoke a at s1: moves to s2"]
    first.releases(flow)
    assert "assign a to s2 in 3" in await desk.round()


async def test_an_entry_that_comes_back_in_time_changes_nothing(desk: Desk) -> None:
    first, second, _ = await two(desk)
    desk.assigner.subscribers("app", [second.info])
    desk.clock.now += GRACE - 1
    desk.registered("s1", "s2")
    desk.clock.now += GRACE
    assert await desk.round() == []
    assert desk.dialled == [first, second]


async def test_the_last_one_is_not_given_up_however_long_it_cannot_be_reached(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.breaks("no route", vacant=False)
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert flow.cause == "waiting for s1"
    desk.assigner.subscribers("app", [])
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert flow.cause == "no subscriber is there"
    await first.ended.wait()
    assert desk.streams() == []


async def test_a_restart_under_the_same_name_is_another_stream(desk: Desk) -> None:
    first, _, flow = await two(desk)
    desk.told.clear()
    desk.registered("s1", "s2", started=2.0)
    assert desk.told[0] == "hang up on s1: the subscriber was restarted"
    again = desk.stream("s1")
    assert again is not first
    assert await desk.round() == []
    again.connects()
    assert f"assign {MINE} to s1 in 2" in await desk.round()
    assert flow.holding.subscriber == "s1"
    await first.ended.wait()
    assert again.flows == [flow], "the end of the former stream took the flow away"


async def test_what_a_restarted_subscriber_had_moves_only_once_it_released_it(desk: Desk) -> None:
    """It listens before it is registered, so the stream that is hung up on may have led to the new process."""
    _, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    desk.joins("s2", "s1")
    desk.registered("s1", "s2", started=2.0)
    desk.stream("s2").connects()
    desk.application(pin={"a": "s2"})
    assert await desk.round() == []
    assert flow.cause == "a handler may still run at s1, whose connection broke"
    desk.stream("s1").connects()
    assert "assign a to s1 in 2" in await desk.round()
    assert await desk.round() == ["revoke a at s1: moves to s2"]


async def test_a_handler_is_waited_for_where_the_connection_is_back_and_the_registration_is_not(desk: Desk) -> None:
    """Its host lost ZooKeeper too, for longer than its session lasts."""
    first, [flow] = await desk.at("s1", MINE)
    desk.joins("s2", "s1")
    first.breaks("silent", vacant=False)
    desk.assigner.subscribers("app", [desk.stream("s2").info])
    desk.clock.now += GRACE + 1.0
    first.connects()
    assert await desk.round() == []
    assert await desk.round() == []
    assert flow.cause == "a handler may still run at s1, whose connection broke"
    desk.clock.now += HANDLER
    assert f"assign {MINE} to s2 in 2" in await desk.round()


async def test_a_handler_that_gave_up_is_halted_until_a_new_life_and_says_why(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.flows.clear()
    desk.assigner.halt(cast("SubscriberStream", first), flow, "no such user")
    assert await desk.round() == []
    first.breaks("broken")
    await desk.round()
    first.connects()
    assert await desk.round() == []
    assert (flow.state(frozenset()), flow.cause) == (PublisherFlowState.HELD, "halted: no such user")
    first.life = object()
    assert f"assign {MINE} to s1 in 2" in await desk.round()


# --- who is asked and does not answer


async def test_a_hand_over_that_is_never_answered_ends_with_the_connection(desk: Desk) -> None:
    first, second, flow = await two(desk)
    desk.application(pin={MINE: "s2"})
    await desk.round()
    desk.clock.now += GRACE + HANDLER - 1
    desk.assigner.revoke(cast("SubscriberStream", first), flow, "its filter changed")  # asked again: no more time
    desk.told.clear()
    assert await desk.round() == []
    desk.clock.now += 2
    done = await desk.round()
    assert done[0] == f"hang up on s1: it did not let go of app/{MINE} in time"
    assert f"assign {MINE} to s2 in 2" in [*done, *await desk.round()]
    assert second.flows == [flow]


async def test_what_is_asked_of_nobody_is_not_waited_for(desk: Desk) -> None:
    """A filter changed while the stream was broken: the next connection has let go of nothing, and must not be hung
    up on."""
    first, [flow] = await desk.at("s1", MINE)
    first.breaks("broken")
    desk.told.clear()
    desk.assigner.revoke(cast("SubscriberStream", first), flow, "its filter changed")
    assert (desk.told, flow.releasing) == ([], False)
    first.connects()
    await desk.round()
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert first.flows == [flow]


async def test_an_application_that_comes_back_waits_for_what_its_subscribers_still_hold(desk: Desk) -> None:
    first, [former] = await desk.at("s1", MINE)
    del desk.assigner.flows[former.key]
    desk.assigner.revoke(cast("SubscriberStream", first), former, "the application is no longer configured")
    flow = desk.flow(MINE)
    assert await desk.round() == [], "the shard would be at two handlers"
    desk.clock.now += GRACE + HANDLER + 1
    assert (await desk.round())[0] == f"hang up on s1: it did not let go of app/{MINE} in time"
    first.connects()
    await desk.round()
    assert first.flows == [flow]


@pytest.mark.parametrize("back", [False, True], ids=["before the application is back", "after it is back"])
async def test_a_handler_of_an_application_that_was_gone_for_a_moment_is_waited_for(desk: Desk, back: bool) -> None:
    first, [former] = await desk.at("s1", MINE)
    desk.joins("s2", "s1")
    await desk.round()
    del desk.assigner.flows[former.key]
    desk.assigner.revoke(cast("SubscriberStream", first), former, "the application is no longer configured")
    if back:
        desk.flow(MINE)
    first.breaks("broken", vacant=False)
    if not back:
        desk.flow(MINE)
    desk.application(pin={MINE: "s2"})
    await desk.round()
    assert desk.stream("s2").flows == [], "two handlers would work on the shard"
    desk.clock.now += GRACE + HANDLER + 1
    await desk.round()
    assert desk.stream("s2").flows == [desk.assigner.flows[former.key]]


# --- who may receive it


async def test_who_is_not_allowed_is_not_dialled_and_reported_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.application(allow=["s1"])
    with caplog.at_level(logging.ERROR):
        desk.registered("s1", "stranger")
        desk.registered("s1", "stranger")
        desk.registered("s1", "stranger", started=2.0)
    assert [stream.info.id for stream in desk.dialled] == ["s1", "s1"]
    [record] = caplog.records
    assert "subscriber stranger is not in the allow list of app" in record.getMessage()


async def test_a_changed_allow_list_counts_at_once(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    desk.registered("s1", "s2")
    desk.application(allow=["s2"])
    assert await desk.round() == [f"revoke {MINE} at s1: moves to s2"]
    first.releases(flow)
    desk.stream("s2").connects()
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    await first.ended.wait()
    desk.application()
    assert desk.stream("s1") is not first, "allowed again: dialled again"


async def test_one_that_is_no_longer_allowed_and_does_not_answer_is_dropped(desk: Desk) -> None:
    first, [_] = await desk.at("s1", MINE)
    desk.application(allow=["s2"])
    assert await desk.round() == [f"revoke {MINE} at s1: no subscriber is there"]
    desk.clock.now += GRACE + HANDLER + 1
    await desk.round()
    await desk.round()
    await first.ended.wait()
    assert desk.streams() == []


async def test_a_pin_is_obeyed_and_a_pin_to_nobody_waits(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE, pin={MINE: "s1"})
    desk.application(pin={MINE: "elsewhere"})
    assert await desk.round() == [f"revoke {MINE} at s1: no subscriber is there"]
    first.releases(flow)
    assert await desk.round() == []
    assert flow.cause == "no subscriber is there"


async def test_subscribers_of_an_unknown_application_are_nobodys(desk: Desk) -> None:
    desk.registered("s1")
    assert desk.dialled == []
    flow = PublisherFlow("nobody", MINE, Filter.parse(None), marker(1), marker(1).order)
    assert desk.assigner.stream_of(flow) is None
