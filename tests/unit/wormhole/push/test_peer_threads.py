from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from wormhole.host.clock import Clock
from wormhole.push.peer_threads import PeerThreads


async def test_one_peer_has_one_turn_at_a_time() -> None:
    """However much one of them asks for, another one waits for what runs now, and for nothing behind it."""
    threads, go_on, done = PeerThreads("test"), threading.Event(), list[str]()

    def work(name: str) -> None:
        assert go_on.wait(PATIENCE_S)
        done.append(name)

    runs = [asyncio.create_task(threads.run("mad", lambda: work("mad"), lambda seconds: None)) for _ in range(50)]
    await asyncio.sleep(0)
    runs.append(asyncio.create_task(threads.run("good", lambda: work("good"), lambda seconds: None)))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*runs)
    assert done.index("good") <= 1
    threads.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_the_processor_time_is_charged_also_for_what_fails(fails: bool) -> None:
    used, charged = 0.0, list[float]()

    def work() -> None:
        nonlocal used
        used += 0.25
        if fails:
            raise ValueError

    threads = PeerThreads("test", clock=Clock(processor=lambda: used))
    (raised,) = await asyncio.gather(threads.run("app", work, charged.append), return_exceptions=True)
    assert (isinstance(raised, ValueError), charged) == (fails, [0.25])
    threads.close()


async def test_what_waits_when_it_is_closed_is_not_done() -> None:
    threads, go_on, done = PeerThreads("test"), threading.Event(), list[str]()
    first = asyncio.create_task(threads.run("a", lambda: go_on.wait(PATIENCE_S), lambda seconds: None))
    second = asyncio.create_task(threads.run("b", lambda: done.append("b"), lambda seconds: None))
    await eventually(lambda: len(threads._turns) == 2, "both wait for their turn")
    threads.close()
    go_on.set()
    assert await first
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not done
