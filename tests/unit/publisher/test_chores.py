"""Background work that nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from publisher.chores import Chores
from tests.support.eventually import eventually
from wormhole.errors import SourceUnavailable


async def test_a_failure_is_said_and_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    chores, done = Chores(), asyncio.Event()

    async def fail() -> None:
        raise SourceUnavailable("the log is away", hint="wait")

    async def work() -> None:
        done.set()

    chores.spawn(fail())
    chores.spawn(work())
    assert len(chores) == 2
    await done.wait()
    await eventually(lambda: not len(chores), "both have ended")
    assert caplog.messages == ["the log is away. Next: wait"]


async def test_stopping_ends_what_is_under_way() -> None:
    chores, ended = Chores(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = chores.spawn(work(), "a name")
    assert task.get_name() == "a name"
    await asyncio.sleep(0)
    await chores.stop()
    assert ended.is_set()
    assert task.cancelled()
