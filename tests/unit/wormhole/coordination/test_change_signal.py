"""Waiting for changes: none is missed, unchanged states are not repeated."""

from __future__ import annotations

import asyncio

from tests.support.eventually import patience
from wormhole.coordination.change_signal import Signal, Unknown, watch


async def test_a_change_before_the_wait_is_not_missed() -> None:
    signal = Signal()
    seen = signal.version
    signal.notify()
    async with patience():
        await signal.wait(seen)


async def test_all_who_wait_are_woken() -> None:
    signal = Signal()
    waits = [asyncio.ensure_future(signal.wait(0)) for _ in range(3)]
    await asyncio.sleep(0)
    signal.notify()
    async with patience():
        await asyncio.gather(*waits)


async def test_a_watch_joins_changes_skips_the_same_and_is_silent_while_nothing_is_known() -> None:
    signal, states = Signal(), [1]
    unknown, ended = [False], [False]

    def snapshot() -> int | Unknown[int]:
        return Unknown() if unknown[0] else states[0]

    iterator = watch(signal, snapshot, lambda: ended[0])
    assert await anext(iterator) == 1
    following = asyncio.ensure_future(anext(iterator, "end"))
    for state, known in ((1, True), (2, False), (3, False)):
        states[0], unknown[0] = state, not known
        signal.notify()
        await asyncio.sleep(0)
        assert not following.done()
    unknown[0] = False
    signal.notify()
    assert await following == 3
    ended[0] = True
    signal.notify()
    assert await anext(iterator, "end") == "end"
