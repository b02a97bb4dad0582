"""A kept node: made again when deleted, waited for when a dead process's session still holds it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.interfaces import IAsyncResult

from tests.support.eventually import eventually, patience
from wormhole.coordination.ephemeral_node import EphemeralNode, NodeTaken
from wormhole.coordination.kazoo_session import ZooKeeperSession

FOLDER = f"/entries-{os.getpid()}"
PATH = f"{FOLDER}/one"


@pytest.fixture
async def first(session: ZooKeeperSession) -> ZooKeeperSession:
    await session.call("make", lambda client: client.ensure_path_async(FOLDER))
    return session


@pytest.fixture
async def second(first: ZooKeeperSession) -> AsyncIterator[ZooKeeperSession]:
    made = ZooKeeperSession(first.settings)
    await made.start()
    yield made
    await made.stop()


def entry(session: ZooKeeperSession, data: bytes = b"me") -> EphemeralNode:
    return EphemeralNode(session, PATH, data, lambda _: None)


async def owner(session: ZooKeeperSession) -> int | None:
    stat = await session.call("look", lambda client: client.exists_async(PATH))
    return None if stat is None else int(stat.ephemeralOwner)


async def test_a_deleted_node_is_made_again(first: ZooKeeperSession, second: ZooKeeperSession) -> None:
    kept = entry(first)
    await kept.open()
    before = (await second.call("look", lambda client: client.exists_async(PATH))).czxid
    await second.call("delete", lambda client: client.delete_async(PATH))
    async with patience():
        while True:
            stat = await second.call("look", lambda client: client.exists_async(PATH))
            if stat is not None and stat.czxid > before:
                break
    await kept.close()
    await kept.close()
    assert await owner(second) is None


async def test_another_live_owner_is_reported_after_its_session_had_time_to_end(
    first: ZooKeeperSession, second: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second, "timeout_s", lambda: -0.5)  # a second is added
    kept = entry(first, b"the first one")
    await kept.open()
    with pytest.raises(NodeTaken) as caught:
        await entry(second).open()
    assert caught.value.by == "the first one"
    await kept.close()


async def test_an_owner_that_leaves_is_followed_at_once(first: ZooKeeperSession, second: ZooKeeperSession) -> None:
    kept, waiting = entry(first), entry(second)
    await kept.open()
    opening = asyncio.ensure_future(waiting.open())
    await asyncio.sleep(0.05)
    assert not opening.done()
    await kept.close()
    await opening
    assert await owner(first) == second.session_id
    await waiting.close()


async def test_closing_leaves_alone_what_another_made(first: ZooKeeperSession, second: ZooKeeperSession) -> None:
    kept = entry(first)
    await kept.open()
    assert kept._keeper is not None
    kept._keeper.cancel()  # so that it does not fight for the node
    await second.call("delete", lambda client: client.delete_async(PATH))
    await second.call("create", lambda client: client.create_async(PATH, b"other", ephemeral=True))
    await kept.close()
    assert await owner(first) == second.session_id


async def test_an_entry_that_another_took_over_is_not_held_until_it_comes_back(
    first: ZooKeeperSession,
    second: ZooKeeperSession,
) -> None:
    kept = entry(first)
    await kept.open()
    assert kept.held

    def take(client: KazooClient) -> IAsyncResult:
        change = client.transaction()
        change.delete(PATH)
        change.create(PATH, b"the other", ephemeral=True)
        return change.commit_async()

    await second.call("take over", take)
    await eventually(lambda: not kept.held, "the loss was noticed")
    await second.call("give back", lambda client: client.delete_async(PATH))
    await eventually(lambda: kept.held, "it is ours again")
    await kept.close()


async def test_what_it_holds_changes_and_comes_back_changed(
    first: ZooKeeperSession,
    second: ZooKeeperSession,
) -> None:
    async def held() -> bytes | None:
        try:
            data, _ = await second.call("read", lambda client: client.get_async(PATH))
        except NoNodeError:
            return None
        return bytes(data)

    async def comes(data: bytes) -> None:
        async with patience():
            while await held() != data:  # noqa: ASYNC110 - no watch
                await asyncio.sleep(0.01)

    kept = entry(first, b"one")
    await kept.open()
    for data in (b"two", b"three", b"one", b"four"):
        kept.update(data)
    await comes(b"four")
    await second.call("delete", lambda client: client.delete_async(PATH))
    await comes(b"four")
    await kept.close()
    assert await held() is None


async def test_what_a_dead_predecessor_left_is_replaced_at_once(
    first: ZooKeeperSession,
    second: ZooKeeperSession,
) -> None:
    await entry(first, b"left by a process that was killed")._hold()
    other = EphemeralNode(second, PATH, b"new", lambda _: None, lambda data: data.startswith(b"left by"))
    await other.open()  # without that it would wait for the end of the first one's session, which does not come
    assert other.held
    assert await owner(first) == second.session_id
    await other.close()
