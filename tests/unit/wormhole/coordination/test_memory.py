"""What the memory form adds to the contract: outages on demand, with a clock of the test's own."""

from __future__ import annotations

import pytest

from tests.contract.test_coordinator import DB1, GROUP, PLAIN, WEST, A, config
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import Contact
from wormhole.model.errors import CoordinationLost, Retryable


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


async def test_a_suspended_client_keeps_its_log_a_lost_one_does_not() -> None:
    world, now = MemoryWorld(config(PLAIN)), [100.0]
    client, other = (MemoryCoordinator(world, now=lambda: now[0]) for _ in range(2))
    await client.start()
    await other.start()
    claim = await client.own_log(GROUP, DB1, server="", why="")
    assert claim.fence() == "", "nothing can be checked here"
    client.suspend()
    assert (claim.held, claim.term) == (True, 1)
    with pytest.raises(Retryable):
        await other.own_log(GROUP, WEST, server="", why="")
    client.lose()
    assert (claim.held, claim.term) == (False, 1)
    now[0] = 101.0
    await (await other.own_log(GROUP, WEST, server="", why="")).close()
    client.restore()
    client.restore()
    assert "took the log in term 2" in await claim.lost()
    assert [term.since for term in (await other.log_owners())[GROUP].terms] == [100.0, 101.0]
    await claim.close()
    client.lose()
    client.restore()
    assert (await other.log_owners())[GROUP].owner is None, "what is closed does not come back"
