"""Two publishers behind one TCP address, as behind a balancer, and the subscribers of all three libraries."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from scripts.clients import built_go
from tests.integration.publisher.conftest import World
from tests.support.clocks import FAST, fast_clock
from tests.support.conforming_client import client
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.typescript_client import client_command

LANGUAGES = ("python", "go", "typescript")


@pytest.fixture(params=LANGUAGES)
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "python":
        return [sys.executable, "-m", "conformance.clients.python"]
    if request.param == "go":
        if shutil.which("go") is None:
            pytest.skip("Go is not installed")
        return [str(await asyncio.to_thread(built_go, "conformance", tmp_path))]
    return client_command(request.getfixturevalue("typescript"))


@pytest.fixture
async def addresses() -> AsyncIterator[tuple[list[World], list[tuple[str, int]]]]:
    """Two publishers of one dataset, each with a log of its own, and where they listen."""
    worlds = [World(fast_clock(), 120.0 * FAST, attaches=True, log=log) for log in ("one", "two")]
    async with AsyncExitStack() as ends:
        found = []
        for world in worlds:
            world.application()
            publisher = await ends.enter_async_context(world.publisher())
            await eventually(lambda publisher=publisher: publisher.listener.address, "it listens")  # type: ignore[misc]
            host, _, port = publisher.listener.address.rpartition(":")
            found.append((host, int(port)))
        yield worlds, found


async def test_the_second_one_is_refused_by_name_and_the_first_one_serves_on(
    addresses: tuple[list[World], list[tuple[str, int]]], program: list[str]
) -> None:
    (first, second), (one, two) = addresses
    first.commit("a")
    second.commit("x")
    with FaultProxy(*one) as balancer:
        async with client(program, f"{balancer.host}:{balancer.port}") as told:
            await eventually(lambda: told.ids == ["mem:1:0"], "the row of the first publisher")
            balancer.lead_to(*two)
            await asyncio.to_thread(balancer.cut)
            await eventually(lambda: told.of("error"), "the refusal")
            balancer.lead_to(*one)
            first.commit("b")
            await eventually(lambda: told.ids[-1:] == ["mem:2:0"], "the first publisher again")
            await told.stop()
    assert {line["code"] for line in told.of("error")} == {"address-taken"}
    assert {line["shard"] for line in told.of("update")} == {"one.t"}
