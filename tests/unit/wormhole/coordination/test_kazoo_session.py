"""Contact is what was proved: by our own clock, from the time of asking, against a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.eventually import eventually, patience
from wormhole.config import CoordinatorConfig
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.port import Contact
from wormhole.model.errors import CoordinationLost


@pytest.fixture
async def own_session(own_zookeeper: EmbeddedZooKeeper) -> AsyncIterator[ZooKeeperSession]:
    """A short one with a server that the test may take away."""
    made = ZooKeeperSession(CoordinatorConfig(zookeeper=own_zookeeper.hosts, session_timeout=1.6))
    await made.start()
    yield made
    await made.stop()


async def until(session: ZooKeeperSession, wanted: Callable[[], bool]) -> None:
    async with patience():
        while not wanted():
            await session.pause(session.signal.version, 0.05)


async def test_contact_is_proved_again_and_again_without_any_call(session: ZooKeeperSession) -> None:
    first = session.last_contact()
    assert first <= time.monotonic()
    await until(session, lambda: session.last_contact() > first + 0.3)
    assert session.contact is Contact.CONNECTED
    assert session.session_id


async def freeze(pid: int) -> None:
    """Stop the process. The signal is sent at once and obeyed a moment later: until then it still answers."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")

    def stopped() -> bool:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir())

    await eventually(stopped, "every thread of the process is stopped")


async def test_a_frozen_server_lets_the_lease_run_out_before_kazoo_notices(
    own_session: ZooKeeperSession, own_zookeeper: EmbeddedZooKeeper
) -> None:
    await until(own_session, lambda: own_session.contact is Contact.CONNECTED)
    await freeze(own_zookeeper.pid)
    try:
        frozen = time.monotonic()
        with pytest.raises(CoordinationLost):
            await own_session.call("read", lambda client: client.exists_async("/"))
        await until(own_session, lambda: own_session.contact is not Contact.CONNECTED)
        assert own_session.last_contact() <= frozen, "an unanswered request proves nothing"
        # Nobody says that the session is gone, as nobody can be asked: our own clock does.
        await until(own_session, lambda: own_session.contact is Contact.LOST)
        assert time.monotonic() - own_session.last_contact() >= own_session.timeout_s()
    finally:
        os.kill(own_zookeeper.pid, signal.SIGCONT)
    await until(own_session, lambda: own_session.contact is Contact.CONNECTED and own_session.last_contact() > frozen)


async def test_a_client_that_stopped_by_itself_is_started_again(session: ZooKeeperSession) -> None:
    client = session._client
    await asyncio.to_thread(client.stop)
    await until(session, lambda: session.contact is Contact.LOST)
    await until(session, lambda: session.contact is Contact.CONNECTED)
    assert await session.call("look", lambda client: client.exists_async("/")) is not None


async def test_more_calls_than_slots_are_all_answered(session: ZooKeeperSession) -> None:
    calls = [session.call("look", lambda client: client.exists_async("/")) for _ in range(300)]
    assert all(await asyncio.gather(*calls))


async def test_before_start_and_after_stop_nothing_is_asked(zookeeper: str) -> None:
    session = ZooKeeperSession(CoordinatorConfig(zookeeper=zookeeper))
    for _ in range(2):
        with pytest.raises(CoordinationLost):
            await session.call("look", lambda client: client.exists_async("/"))
        await session.start()
        assert "connected" in repr(session)
        await session.stop()
        await session.stop()
        assert session.contact is Contact.LOST


async def test_a_start_that_is_cancelled_leaves_no_session() -> None:
    session = ZooKeeperSession(CoordinatorConfig(zookeeper="127.0.0.1:1", connect_timeout=0.5))
    starting = asyncio.ensure_future(session.start())
    await asyncio.sleep(0.1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not session.running
    assert session.contact is Contact.LOST


async def test_a_server_that_lost_its_data_is_joined_again(
    own_session: ZooKeeperSession, own_zookeeper: EmbeddedZooKeeper
) -> None:
    """It refuses who has seen a later transaction than it has."""
    await own_session.call("make", lambda client: client.ensure_path_async("/some/thing"))
    await asyncio.to_thread(own_zookeeper.kill)
    await asyncio.to_thread(shutil.rmtree, own_zookeeper.folder / "data")
    await asyncio.to_thread(own_zookeeper.start)
    back = time.monotonic()
    await until(own_session, lambda: own_session.contact is Contact.CONNECTED and own_session.last_contact() > back)
    assert await own_session.call("look", lambda client: client.exists_async("/some/thing")) is None
