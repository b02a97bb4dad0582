"""What the memory form adds to the contract: outages on demand, with a clock of the test's own."""

from __future__ import annotations

import pytest

from tests.contract.test_coordinator import PLAIN, A, config
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import Contact
from wormhole.model.errors import CoordinationLost


async def test_the_lease_runs_from_the_last_contact() -> None:
    now = [100.0]
    client = MemoryCoordinator(session_timeout=6.0, clock=lambda: now[0])
    await client.start()
    now[0] = 101.0
    assert (client.last_contact(), client.lease_s()) == (101.0, 4.0)
    client.suspend()
    now[0] = 200.0
    assert client.last_contact() == 101.0
    client.lose()
    assert client.last_contact() == 101.0
    client.restore()
    assert client.last_contact() == 200.0
    await client.stop()


async def test_a_suspended_client_is_still_seen_a_lost_one_is_not() -> None:
    world = MemoryWorld(config(PLAIN))
    client, other = MemoryCoordinator(world), MemoryCoordinator(world)
    with pytest.raises(CoordinationLost):
        await client.subscribers()  # not started
    await client.start()
    await other.start()
    await client.register_subscriber(A)
    client.suspend()
    assert await other.subscribers() == (A,)
    client.lose()
    assert client.contact is Contact.LOST
    assert await other.subscribers() == ()
    client.restore()
    assert await other.subscribers() == (A,)
