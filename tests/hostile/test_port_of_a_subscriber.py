"""Without TLS a local user takes the port of a subscriber that ended, or another one that is registered: it gets no
update."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import SubscriberInfo

NOBODY = 65534

# Has a server loaded as the user of the tests, whose packages another one may not read, and then serves as nobody.
IMPOSTOR = """
import asyncio, os, sys
from tests.support.scripted_subscriber import scripted_subscriber

async def main():
    async with scripted_subscriber("app", "sub"):
        pass
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
    async with scripted_subscriber("app", "sub") as one:
        print(one.address, flush=True)
        await one.hears("hello")
        await one.hears("assign")
        print("assigned", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
    pytest.mark.allow_blocking("a program of another user is started and ended"),
]


@contextmanager
def nobody() -> Iterator[subprocess.Popen[str]]:
    """A subscriber that a local user without rights runs; its address is the first line that it prints."""
    with subprocess.Popen([sys.executable, "-c", IMPOSTOR, str(NOBODY)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def registered(world: World, process: subprocess.Popen[str], user: int | None) -> str:
    """The address of the process, which a subscriber of ``user`` has registered."""
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    coordinator = MemoryCoordinator(world.coordination)
    await coordinator.start()
    info = SubscriberInfo("app", "sub", address, started=1.0, user=user)
    world.registrations["sub"] = await coordinator.register_subscriber(info)
    return address


async def test_another_user_at_the_address_of_a_subscriber_gets_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.application()
    world.commit("a")
    with nobody() as process:
        address = await registered(world, process, os.geteuid())
        refused = f"{address} is served by user {NOBODY}, and the subscriber that registered it runs as user 0"
        async with world.publisher() as publisher:
            await eventually(lambda: refused in caplog.text, "the refusal")
            [stream] = publisher.assigner.streams()
            assert (stream.connected, stream.traffic.connections) == (False, 0)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""


@pytest.mark.parametrize("user", [NOBODY, None])
async def test_a_subscriber_that_runs_as_another_user_is_served(world: World, user: int | None) -> None:
    world.application()
    with nobody() as process:
        await registered(world, process, user)
        async with world.publisher() as publisher:
            await eventually(lambda: any(stream.connected for stream in publisher.assigner.streams()), "its welcome")
