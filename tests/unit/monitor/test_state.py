"""The state of a host, and what differs between two statuses."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from monitor.state import HostEvent, HostState, LogKey
from monitor.status_diff import status_events
from wormhole.host.clock import Clock
from wormhole.wire.v1 import admin_pb2

# --- What the host's state promises its readers: each change is seen, none is waited for twice, events are bounded


@pytest.fixture
def state() -> HostState:
    return HostState("h1")


async def test_a_reader_wakes_at_a_change_and_not_before(state: HostState) -> None:
    seen = state.version
    waiting = [asyncio.ensure_future(state.wait(seen)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    state.changed()
    assert await asyncio.gather(*waiting) == [seen + 1, seen + 1]


async def test_a_change_before_the_wait_is_not_missed(state: HostState) -> None:
    seen = state.version
    state.changed()
    state.changed()
    assert await state.wait(seen) == seen + 2


async def test_a_reader_that_gave_up_is_forgotten(state: HostState) -> None:
    waiting = asyncio.ensure_future(state.wait(state.version))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not state._waiting
    state.changed()


def test_the_last_events_are_kept_and_each_is_a_change() -> None:
    state = HostState("h1", clock=Clock(wall=count(0.0).__next__))
    for _ in range(1000):
        state.report("start", "started", "shop/main/db1")
    assert len(state.events) == 200
    assert state.events[-1].at == 999.0
    assert state.version == 1000


def test_caravans_by_the_dozen_push_nothing_else_out(state: HostState) -> None:
    for number in range(120):
        state.add(HostEvent(float(number), "restart", "shop/main/db1", "ended"))
    for number in range(1000):
        state.add(HostEvent(1000.0 + number, "split" if number % 2 else "merge", "shop/main/db1", "caravan"))
    kinds = [event.kind for event in state.events]
    assert kinds.count("restart") == 100
    assert kinds.count("split") == kinds.count("merge") == 50
    assert state.events[-1].at == 1999.0


def test_a_log_is_named_as_everywhere_else() -> None:
    assert str(LogKey("shop", "main", "db1")) == "shop/main/db1"
    assert LogKey("a", "z", "z") < LogKey("b", "a", "a")


# --- Between two answers of a publisher: what is news, and that nothing is news twice


KEY = LogKey("shop", "main", "db1")


STARTED, ENDED, JOINED = admin_pb2.CaravanEvent.STARTED, admin_pb2.CaravanEvent.ENDED, admin_pb2.CaravanEvent.JOINED


def answer(
    *events: tuple[float, admin_pb2.CaravanEvent.Kind, str], flows: tuple[admin_pb2.FlowStatus, ...] = ()
) -> admin_pb2.PublisherStatus:
    listed = [admin_pb2.CaravanEvent(at_s=at, caravan=2, kind=kind, what=what) for at, kind, what in events]
    return admin_pb2.PublisherStatus(events=listed, flows=flows)


def kinds(before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in status_events(KEY, before, after, 9.0)]


def test_caravans_that_start_and_end_are_reported_once() -> None:
    first = answer((1.0, STARTED, "starts at 1/4/0: the lead"))
    assert kinds(None, first) == [], "what was before the monitor is not news"
    second = answer(
        (1.0, STARTED, "starts at 1/4/0: the lead"),
        (2.0, STARTED, "starts at 1/2/0: cache/db1 is behind"),
        (2.0, JOINED, "cache/db1 joins: closest"),
        (3.0, ENDED, "ends at 1/4/9: empty"),
    )
    assert kinds(first, second) == [("split", "shop/main/db1"), ("merge", "shop/main/db1")]
    assert status_events(KEY, first, second, 9.0)[0].text == "caravan 2 starts at 1/2/0: cache/db1 is behind"
    assert kinds(second, second) == []
    # The publisher tells a bounded number of them: older ones that fall out change nothing.
    assert kinds(second, answer((3.0, ENDED, "ends at 1/4/9: empty"))) == []


def test_a_restarted_publishers_caravans_are_news() -> None:
    assert kinds(answer((5.0, ENDED, "ends")), answer((6.0, STARTED, "starts at 1/1/1: the lead"))) == [
        ("split", "shop/main/db1")
    ]


def test_losses_and_halted_flows_are_reported_when_they_come_and_also_at_first() -> None:
    lost = admin_pb2.FlowStatus(flow="cache/db1", loss_pending=True, cause="log 1 is gone")
    halted = admin_pb2.FlowStatus(flow="cache/db2", halted_at="1/2/3", cause="boom")
    well = admin_pb2.FlowStatus(flow="cache/db1")
    now = answer(flows=(lost, halted))
    assert kinds(None, now) == [("data_loss", "cache/db1"), ("halted", "cache/db2")]
    assert kinds(answer(flows=(well,)), now) == [("data_loss", "cache/db1"), ("halted", "cache/db2")]
    assert kinds(now, now) == []
    further = admin_pb2.FlowStatus(flow="cache/db2", halted_at="1/2/4", cause="boom")
    assert kinds(now, answer(flows=(further,))) == [("halted", "cache/db2")], "at another update it is another one"
    assert "1/2/3" in status_events(KEY, None, now, 9.0)[1].text
    needs = answer(flows=(admin_pb2.FlowStatus(flow="cache/db1", state="needs_replay", cause="the log is gone"),))
    assert kinds(answer(flows=(well,)), needs) == [("needs_replay", "cache/db1")]
    assert kinds(needs, needs) == []


def test_who_comes_to_own_the_log_and_who_gives_it_up_is_news() -> None:
    waits = admin_pb2.PublisherStatus(standby=admin_pb2.Problem(text="stands by: main@beta owns the log, in term 4"))
    owns = admin_pb2.PublisherStatus(term=3)
    assert kinds(None, owns) == [], "what was before the monitor is not news"
    [taken] = status_events(KEY, waits, owns, 9.0)
    assert (taken.kind, taken.subject, taken.text) == ("owner", "shop/main/db1", "owns its log, in term 3")
    [given] = status_events(KEY, owns, waits, 9.0)
    assert (given.kind, given.text) == ("owner", "stands by: main@beta owns the log, in term 4")
    assert kinds(owns, owns) == kinds(waits, waits) == []
