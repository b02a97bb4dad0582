"""Whose datamarkers say something of a log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from publisher.flows.served_applications import ServedApplications
from tests.support.clocks import fast_clock
from tests.support.eventually import eventually
from wormhole.config import ApplicationConfig, parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.model.errors import ConfigError

FLEET = """
version = 1
[coordinator]
zookeeper = "zk:2181"
[datasets.shop.copies.main.logs.db1]
source = "a"
kind = "mysql"
[datasets.shop.copies.west.logs.db1]
source = "b"
kind = "mysql"
[datasets.shop.copies.east.logs.db1]
source = "c"
kind = "mysql"
[datasets.other.copies.main.logs.db1]
source = "d"
kind = "mysql"
[applications.others]
dataset = "other"
start = "latest"
[applications.eastern]
dataset = "shop"
copy = "east"
start = "latest"
"""
TURNS = """
[datasets.shop.failover]
copies = ["main", "west"]
[applications.cache]
dataset = "shop"
start = "latest"
"""
ALONE = """
[applications.mains]
dataset = "shop"
copy = "main"
start = "latest"
"""


@asynccontextmanager
async def following(text: str, copy: str) -> AsyncIterator[tuple[ServedApplications, MemoryCoordinator]]:
    config = await asyncio.to_thread(parse, FLEET + text, "test")
    coordinator = MemoryCoordinator(MemoryWorld(config))
    await coordinator.start()
    served = ServedApplications(coordinator, config.datasets["shop"], copy, fast_clock())
    task = asyncio.create_task(served.run())
    yield served, coordinator
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await coordinator.stop()


@pytest.mark.parametrize(
    ("text", "copy", "names"),
    [
        (TURNS, "main", {"cache"}),
        (TURNS, "west", {"cache"}),
        (TURNS, "east", {"eastern"}),
        (ALONE, "main", {"mains"}),
        (ALONE, "west", set()),
    ],
)
async def test_they_are_those_that_the_copy_serves(text: str, copy: str, names: set[str]) -> None:
    async with following(text, copy) as (served, _):
        assert served.any(), "not known yet"
        assert await served.names() == names
        assert served.any() == bool(names)


async def test_one_that_is_configured_no_longer_does_not_count() -> None:
    async with following(TURNS, "main") as (served, coordinator):
        assert await served.names() == {"cache"}
        del coordinator.world.applications["cache"]
        coordinator.world.signal.notify()
        await eventually(lambda: not served.any(), "it is removed")
        assert await served.names() == set()
        await coordinator.stop()
        await asyncio.sleep(0)
        assert await served.names() == set(), "as far as was seen"


async def test_a_configuration_that_cannot_be_read_is_an_answer_and_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [ConfigError("not allowed"), ConfigError("not allowed")]
    watch = MemoryCoordinator.watch_applications

    def refused_first(self: MemoryCoordinator) -> AsyncIterator[Mapping[str, ApplicationConfig]]:
        if errors:
            raise errors.pop()
        return watch(self)

    monkeypatch.setattr(MemoryCoordinator, "watch_applications", refused_first)
    async with following(TURNS, "main") as (served, _):
        with pytest.raises(ConfigError, match="not allowed"):
            await served.names()
        await eventually(lambda: served._names == frozenset({"cache"}), "it is read again")
        assert await served.names() == {"cache"}
    assert caplog.text.count("the configured applications cannot be read, a retry follows: not allowed") == 1
