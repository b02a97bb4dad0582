"""Background work that nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from publisher.flows.background_tasks import BackgroundTasks
from tests.support.eventually import eventually
from wormhole.model.errors import SourceUnavailable


async def test_a_failure_is_said_and_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    background, done = BackgroundTasks(), asyncio.Event()

    async def fail() -> None:
        raise SourceUnavailable("the log is away", hint="wait")

    async def work() -> None:
        done.set()

    background.spawn(fail())
    background.spawn(work())
    assert len(background) == 2
    await done.wait()
    await eventually(lambda: not len(background), "both have ended")
    assert caplog.messages == ["the log is away [source-unavailable]. Next: wait"]


@pytest.mark.allow_error_log("a fault of ours is logged with its traceback")
async def test_a_fault_of_ours_is_reported_when_it_happens_and_not_when_memory_is_collected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = BackgroundTasks()

    async def fail() -> None:
        raise ZeroDivisionError("a bug")

    task = background.spawn(fail())
    await asyncio.wait([task])
    assert task.exception() is None
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_stopping_ends_what_is_under_way() -> None:
    background, ended = BackgroundTasks(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = background.spawn(work(), "a name")
    assert task.get_name() == "a name"
    await asyncio.sleep(0)
    await background.stop()
    assert ended.is_set()
    assert task.cancelled()
