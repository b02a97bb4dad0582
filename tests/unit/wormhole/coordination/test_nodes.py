"""Nodes as values: what is missing reads as nothing, and a watch of it fires when it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import patience
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.nodes import LARGEST_NODE, Nodes, Watcher
from wormhole.model.errors import ConfigError


@pytest.fixture
async def nodes(zookeeper: str) -> AsyncIterator[tuple[Nodes, str]]:
    hosts, _, root = zookeeper.partition("/")
    session = ZooKeeperSession(CoordinatorConfig(zookeeper=hosts, session_timeout=6.0))
    await session.start()
    yield Nodes(session), f"/{root}"
    await session.stop()


async def test_what_is_missing_is_nothing(nodes: tuple[Nodes, str]) -> None:
    made, root = nodes
    assert (await made.get(f"{root}/x"), await made.children(root), await made.version(root)) == (None, [], 0)


async def test_each_write_raises_the_version(nodes: tuple[Nodes, str]) -> None:
    made, root = nodes
    await made.put(f"{root}/x/y", b"one")
    assert await made.version(f"{root}/x/y") == 0
    await made.put(f"{root}/x/y", b"two")
    assert await made.version(f"{root}/x/y") == 1
    assert (await made.get(f"{root}/x/y"), await made.get(f"{root}/x")) == (b"two", b"")
    assert await made.children(f"{root}/x") == ["y"]


async def test_a_watch_sees_what_was_missing_come_change_and_go(nodes: tuple[Nodes, str]) -> None:
    made, root = nodes
    stopped = False

    async def read(changed: Watcher) -> tuple[bytes | None, list[str]]:
        return await made.get(f"{root}/x", changed), await made.children(f"{root}/list", changed)

    async with patience():
        watch = made.watch(read, lambda: stopped)
        assert await anext(watch) == (None, [])
        await made.put(f"{root}/x", b"one")
        assert await anext(watch) == (b"one", [])
        await made.put(f"{root}/x", b"two")
        assert await anext(watch) == (b"two", [])
        await made.ensure(f"{root}/list/a")
        while await anext(watch) != (b"two", ["a"]):  # the parent may be seen first
            pass
        stopped = True
        await made.put(f"{root}/x", b"three")
        assert [state async for state in watch] == []


async def test_of_many_questions_one_error_comes_out(nodes: tuple[Nodes, str]) -> None:
    made, _ = nodes

    async def ask(number: int) -> int | None:
        if number == 3:
            raise ConfigError("three")
        return number or None

    assert await made.each(range(3), ask) == [1, 2]
    with pytest.raises(ConfigError, match="three"):
        await made.each(range(5), ask)


async def test_a_node_too_large_is_refused_here(nodes: tuple[Nodes, str]) -> None:
    made, root = nodes
    with pytest.raises(ConfigError, match="too large"):
        await made.put(f"{root}/x", b"x" * (LARGEST_NODE + 1))
    assert await made.get(f"{root}/x") is None
