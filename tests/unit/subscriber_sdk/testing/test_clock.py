"""Waiting moves the clock and takes no time, unless something outside is waited for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from subscriber_sdk.testing.clock import FakeTimeLoop, InlineExecutor


@pytest.fixture
def loop() -> Iterator[FakeTimeLoop]:
    loop = FakeTimeLoop()
    yield loop
    loop.close()


def test_an_hour_takes_no_time(loop: FakeTimeLoop) -> None:
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600)


def test_timers_fire_in_order(loop: FakeTimeLoop) -> None:
    heard: list[float] = []

    async def main() -> None:
        await asyncio.gather(*(note(seconds) for seconds in (3.0, 1.0, 2.0)))

    async def note(seconds: float) -> None:
        await asyncio.sleep(seconds)
        heard.append(loop.time())

    loop.run_until_complete(main())
    assert heard == pytest.approx([1.0, 2.0, 3.0])


def test_a_pipe_of_the_outside_is_waited_for_in_real_time(loop: FakeTimeLoop) -> None:
    read, write = os.pipe()
    ready = asyncio.Event()

    async def main() -> None:
        loop.add_reader(read, ready.set)
        threading.Timer(0.05, os.write, (write, b"x")).start()
        async with asyncio.timeout(3600):
            await ready.wait()
        loop.remove_reader(read)

    loop.run_until_complete(main())
    assert 0.03 < loop.time() < 3600
    os.close(read)
    os.close(write)


def test_executors_run_in_place(loop: FakeTimeLoop) -> None:
    async def main() -> int:
        return await asyncio.to_thread(threading.get_ident)

    assert loop.run_until_complete(main()) == threading.get_ident()


def test_the_inline_executor_hands_on_errors() -> None:
    assert InlineExecutor().submit(int, "7").result() == 7
    assert isinstance(InlineExecutor().submit(int, "x").exception(), ValueError)
