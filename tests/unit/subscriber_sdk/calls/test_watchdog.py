"""A callback over its time is noticed within an eighth of the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from subscriber_sdk.calls.watchdog import Watchdog
from subscriber_sdk.testing.clock import FakeTimeLoop


@pytest.fixture
def loop() -> Iterator[FakeTimeLoop]:
    loop = FakeTimeLoop()
    yield loop
    loop.close()


def test_it_cancels_between_the_limit_and_an_eighth_more(loop: FakeTimeLoop) -> None:
    async def main() -> float:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        await asyncio.sleep(0.5)
        dog.current = "slow"
        began = loop.time()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            task.uncancel()
        assert dog.expired
        dog.close()
        return loop.time() - began

    assert 8.0 <= loop.run_until_complete(main()) <= 9.0


def test_many_short_callbacks_are_fine(loop: FakeTimeLoop) -> None:
    async def main() -> None:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        for number in range(50):
            dog.current = object()
            await asyncio.sleep(7.0)
            assert not dog.expired, number
        dog.close()

    loop.run_until_complete(main())


def test_resting_costs_no_timer(loop: FakeTimeLoop) -> None:
    async def main() -> None:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        dog.current = "x"
        dog.rest()
        await asyncio.sleep(100)
        assert not dog.expired
        began = loop.time()
        dog.watch(task)
        dog.current = "y"
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            task.uncancel()
        assert loop.time() - began < 10
        dog.close()

    loop.run_until_complete(main())
