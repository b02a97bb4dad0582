"""A flow of an earlier publisher goes first to the subscriber that its record names: a handler may still run there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from publisher.push.flow import PublisherFlow
from tests.unit.publisher.flows.assigner_desk import MINE, Desk, two
from wormhole.model.errors import CoordinationLost
from wormhole.ports.marker_store import FlowControl, ReplayControl

UNTIL_S = 100.0
WAITS = "a handler may still run at s2, where the last publisher had it"


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    desk = Desk(monkeypatch)
    yield desk
    await desk.assigner.close(0)


def taken_over(desk: Desk, *names: str) -> PublisherFlow:
    """MINE belongs to s1, which is connected; an earlier publisher had it at s2. ``names`` are registered."""
    desk.application()
    flow = desk.flow(MINE)
    flow.holding.was_at("s2", None, desk.clock.now + UNTIL_S)
    desk.registered("s1", *names)
    desk.stream("s1").connects()
    return flow


async def given_to_s1(desk: Desk, epoch: int = 1) -> bool:
    return f"assign {MINE} to s1 in {epoch}" in await desk.round()


async def test_it_goes_to_the_former_holder_and_moves_by_its_release(desk: Desk) -> None:
    flow = taken_over(desk, "s2")
    desk.stream("s2").connects()
    assert f"assign {MINE} to s2 in 1" in await desk.round()
    assert await desk.round() == [f"revoke {MINE} at s2: moves to s1"]
    desk.stream("s2").releases(flow)
    assert await given_to_s1(desk, 2)


async def test_another_process_of_its_id_does_not_count_for_it(desk: Desk) -> None:
    """It dialled the earlier publisher, and another process of its id was the first to dial this one."""
    flow = taken_over(desk, "s2")
    flow.holding.was_at("s2", None, desk.clock.now + UNTIL_S, process="of then")
    desk.stream("s2").connects()
    assert await desk.round() == []
    desk.stream("s2").left = True
    assert await desk.round() == []
    assert (flow.cause, flow.recorded, flow.holding.recorded_process) == (WAITS, "s2", "of then")
    desk.clock.now += UNTIL_S
    assert await given_to_s1(desk)


async def test_one_that_is_the_right_one_keeps_it(desk: Desk) -> None:
    flow = taken_over(desk, "s2")
    desk.stream("s2").connects()
    desk.application(pin={MINE: "s2"})
    assert f"assign {MINE} to s2 in 1" in await desk.round()
    desk.clock.now += 10 * UNTIL_S
    assert await desk.round() == []
    assert flow.holding.held_until == 0.0


@pytest.mark.parametrize("names", [(), ("s2",)], ids=["not registered", "registered"])
async def test_one_that_is_not_there_is_waited_for(desk: Desk, names: tuple[str, ...]) -> None:
    flow = taken_over(desk, *names)
    assert await desk.round() == []
    assert (flow.cause, flow.recorded) == (WAITS, "s2"), "who owns the log next would not know of it"
    desk.clock.now += UNTIL_S - 1
    assert await desk.round() == []
    desk.clock.now += 1
    assert await given_to_s1(desk)


async def test_one_that_appears_in_time_gets_it(desk: Desk) -> None:
    taken_over(desk)
    assert await desk.round() == []
    desk.registered("s1", "s2")
    assert await desk.round() == []
    desk.stream("s2").connects()
    assert f"assign {MINE} to s2 in 1" in await desk.round()


async def test_at_an_address_where_nobody_listens_no_handler_runs(desk: Desk) -> None:
    flow = taken_over(desk, "s2")
    desk.stream("s2").vacant = True
    assert await given_to_s1(desk)
    assert flow.holding.subscriber == "s1"


async def test_one_that_left_has_ended_its_handlers(desk: Desk) -> None:
    taken_over(desk, "s2")
    desk.stream("s2").connects()
    desk.stream("s2").left = True
    assert await given_to_s1(desk)


@pytest.mark.parametrize("why", ["leaving", "not allowed"])
async def test_one_that_takes_no_part_gets_nothing_and_is_waited_for(desk: Desk, why: str) -> None:
    flow = taken_over(desk, "s2")
    desk.stream("s2").connects()
    if why == "leaving":
        desk.stream("s2").leaving = True
    else:
        desk.application(allow=["s1"])
    assert await desk.round() == []
    assert flow.cause == WAITS
    desk.clock.now += UNTIL_S
    assert await given_to_s1(desk)


async def test_once_resolved_it_is_assigned_as_any_other(desk: Desk) -> None:
    flow = taken_over(desk)
    desk.stream("s1").breaks("gone")
    desk.clock.now += UNTIL_S
    assert await desk.round() == []
    assert (flow.cause, flow.holding.subscriber, flow.recorded) == ("waiting for s1", None, "")
    desk.stream("s1").connects()
    assert await given_to_s1(desk)


async def test_a_flow_that_nobody_had_waits_for_nobody(desk: Desk) -> None:
    desk.application()
    desk.flow(MINE)
    desk.registered("s1", "s2")
    desk.stream("s1").connects()
    assert await given_to_s1(desk)


async def test_a_replay_waits_for_the_former_holder_too(desk: Desk) -> None:
    flow = taken_over(desk, "s2")
    await desk.round()
    assert desk.assigner.receiver(flow) is None
    assert flow.cause == WAITS
    desk.assigner.lend(flow, "s2")  # the replay's last task pushed there
    assert desk.assigner.receiver(flow) is None
    assert flow.cause == WAITS
    desk.stream("s2").vacant = True
    receiver: object = desk.assigner.receiver(flow)
    assert receiver is desk.stream("s1")


async def test_a_replay_that_pushed_elsewhere_since_is_what_counts(desk: Desk) -> None:
    flow = taken_over(desk)
    await desk.round()
    desk.assigner.lend(flow, "s1")
    assert (flow.holding.subscriber, flow.holding.held_until) == ("s1", 0.0)
    receiver: object = desk.assigner.receiver(flow)
    assert receiver is desk.stream("s1")


# --- what the record names


async def test_the_record_names_who_gets_the_flow_before_it_does(desk: Desk) -> None:
    first, second, flow = await two(desk)
    desk.application(pin={MINE: "s2"})
    await desk.round()
    first.releases(flow)
    desk.told.clear()
    desk.recorded.clear()
    await desk.round()
    assert desk.told == ["settle", f"epoch {MINE}", f"record {MINE} in 2", f"assign {MINE} to s2 in 2"]
    assert desk.recorded == [(MINE, "s2")]
    assert (second.flows, flow.recorded) == ([flow], "s2")


async def test_a_flow_that_was_not_given_away_is_nobodys(desk: Desk) -> None:
    [flow] = desk.before("s1", MINE)
    desk.record_failure = CoordinationLost("away")
    await desk.round()
    assert desk.recorded == [(MINE, "s1")]
    assert (flow.holding.intended, flow.recorded, flow.holding.subscriber) == (None, "", None)
    desk.record_failure = None
    assert await given_to_s1(desk, 2)


async def test_a_released_flow_is_nobodys_and_one_whose_stream_broke_is_still_there(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    assert flow.recorded == "s1"
    first.breaks("broken", vacant=False)
    assert flow.recorded == "s1", "a handler may still run"
    first.connects()
    await desk.round()
    first.releases(flow)
    assert flow.recorded == ""


async def test_a_halted_flow_has_no_handler(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.flows.clear()
    flow.halt("halted: no such user", "s1", first.life, "")
    assert (flow.holding.subscriber, flow.recorded) == ("s1", "")


async def test_a_replayed_flow_is_where_its_task_pushes(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.releases(flow)
    replay = ReplayControl("r", "eve", "log", 0.0, 60.0, "ticket")
    flow.controlled(FlowControl(replay=replay))
    assert flow.recorded == ""
    flow.controlled(FlowControl(replay=ReplayControl("r", "eve", "log", 0.0, 60.0, "ticket", subscriber="s2")))
    assert flow.recorded == "s2"
