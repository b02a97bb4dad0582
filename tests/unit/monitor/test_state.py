"""What the host's state promises its readers: each change is seen, none is waited for twice, events are bounded."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from monitor.state import HostEvent, HostState, LogKey
from wormhole.host.clock import Clock


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
